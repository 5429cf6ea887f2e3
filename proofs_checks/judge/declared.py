"""What a port says of itself, checked: the same words from a module's constants and from a port.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proofs_checks.numbers import FORMATS, Precision

if TYPE_CHECKING:
    from proofs_checks.judge.dialects import Dialect

CONSTANTS: dict[str, Any] = {
    "FRAMEWORK": "numpy",
    "DEVICE": "cpu",
    "DTYPES": ["float32"],
    "ACCUMULATE": "float32",
    "OUTPUT": None,
    "TIES": "any",
    "REPRODUCIBLE": False,
    "LAWS": [],
    "DIALECT": "paper",
}
"""What a port may declare about itself, with the defaults."""


class PortError(Exception):
    """The port cannot be used at all (exit code 3)."""


@dataclass(frozen=True)
class Declared:
    """What a port says of itself."""

    dtypes: tuple[str, ...]
    accumulate: str
    output: str | None
    lowest_index: bool
    dialect: str
    functions: tuple[str, ...]
    laws: tuple[str, ...] = ()
    """Laws that its codebooks are fitted to; none declared means every law is asked."""
    reproducible: bool = False

    @classmethod
    def read(cls, reply: dict[str, Any]) -> Declared:
        """Check the constants of a loaded port. Raises PortError that names a bad one."""
        from proofs_checks.judge.dialects import DIALECTS  # not at the top: the port's process does without the bounds

        constants = reply["constants"]
        known = tuple(FORMATS)
        for name in ("DTYPES", "ACCUMULATE", "OUTPUT"):
            values = constants[name] if isinstance(constants[name], list) else [constants[name]]
            for value in values:
                if value not in known and not (name == "OUTPUT" and value is None):
                    raise PortError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
        if constants["FRAMEWORK"] not in ("numpy", "torch"):
            raise PortError(f"FRAMEWORK: expected 'numpy' or 'torch', got {constants['FRAMEWORK']!r}")
        if constants["TIES"] not in ("any", "lowest_index"):
            raise PortError(f"TIES: expected 'any' or 'lowest_index', got {constants['TIES']!r}")
        if not isinstance(constants["REPRODUCIBLE"], bool):
            raise PortError(f"REPRODUCIBLE: expected True or False, got {constants['REPRODUCIBLE']!r}")
        if constants["DIALECT"] not in DIALECTS:
            raise PortError(f"DIALECT: expected one of {', '.join(DIALECTS)}, got {constants['DIALECT']!r}")
        return cls(
            tuple(constants["DTYPES"]),
            constants["ACCUMULATE"],
            constants["OUTPUT"],
            constants["TIES"] == "lowest_index",
            constants["DIALECT"],
            tuple(reply["functions"]),
            tuple(constants["LAWS"]),
            reproducible=bool(constants["REPRODUCIBLE"]),
        )

    @property
    def rules(self) -> Dialect:
        """What a port of this dialect is judged by."""
        from proofs_checks.judge.dialects import DIALECTS  # see above

        return DIALECTS[self.dialect]

    def precision(self, dtype: str) -> Precision:
        """The precision of calls with inputs of ``dtype``.

        >>> constants = {**CONSTANTS, "DTYPES": ["bfloat16"]}
        >>> Declared.read({"constants": constants, "functions": []}).precision("bfloat16").output
        'bfloat16'
        """
        return Precision(dtype, self.accumulate, self.output or dtype)
