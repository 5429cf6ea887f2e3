"""Straight PTX with fresh register names: what the generators of long texts share."""

from __future__ import annotations

import struct

Registers = list[str]
MMA = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
MAGIC = "0f4B400000"
"""1.5 * 2^23: a number below 2^22 added to it is rounded to an integer, half to even, in the lowest bits."""


def number(value: float) -> str:
    """A float32 constant.

    >>> number(1.0)
    '0f3F800000'
    """
    return f"0f{struct.pack('>f', value).hex().upper()}"


class Text:
    """Lines of PTX. Every method that computes returns the name of a new register."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = {"f": 0, "b": 0, "p": 0, "d": 0, "h": 0}
        self.shared: dict[str, int] = {}

    def new(self, kind: str) -> str:
        """A new register: f (float32), b, d, h (32, 64, 16 bits) or p (predicate)."""
        self.count[kind] += 1
        return f"{kind}{self.count[kind] - 1}"

    def add(self, *lines: str) -> None:
        """Lines as they are."""
        self.lines += lines

    def op(self, instruction: str, *operands: str | int, kind: str = "f") -> str:
        """``instruction`` with a new register in front of ``operands``."""
        out = self.new(kind)
        self.lines.append(f"{instruction} {out}, {', '.join(map(str, operands))};")
        return out

    def fma(self, a: str, b: str, c: str) -> str:
        """a b + c."""
        return self.op("fma.rn.f32", a, b, c)

    def mul(self, a: str, b: str) -> str:
        """a b."""
        return self.op("mul.f32", a, b)

    def plus(self, a: str, b: str) -> str:
        """a + b."""
        return self.op("add.f32", a, b)

    def largest(self, values: Registers) -> str:
        """Largest magnitude of several numbers."""
        found = self.op("abs.f32", values[0])
        for value in values[1:]:
            found = self.op("max.f32", found, self.op("abs.f32", value))
        return found

    def swapped(self, value: str, distance: int | str) -> str:
        """The value of the lane whose number differs by XOR with ``distance``."""
        return self.op("shfl.sync.bfly.b32", value, distance, "0x1f", "0xffffffff")

    def of_lane(self, value: str, lane: str, kind: str = "b") -> str:
        """The value of one lane."""
        return self.op("shfl.sync.idx.b32", value, lane, "0x1f", "0xffffffff", kind=kind)

    def of_quad(self, value: str, lane: str, kind: str = "f") -> str:
        """The value of one lane, 0..3, of the same quad."""
        return self.op("shfl.sync.idx.b32", value, lane, "0x1c1f", "0xffffffff", kind=kind)

    def over_lanes(self, value: str, distances: tuple[int, ...], instruction: str) -> str:
        """Folded over lanes: a sum ("add.f32") or a maximum ("max.f32")."""
        for distance in distances:
            value = self.op(instruction, value, self.swapped(value, distance))
        return value

    def load(self, width: int, address: str, space: str = "shared", kind: str = "f") -> Registers:
        """``width`` words of 32 bits."""
        out = [self.new(kind) for _ in range(width)]
        names = f"{{{','.join(out)}}}" if width > 1 else out[0]
        vector = f".v{width}" if width > 1 else ""
        self.lines.append(f"ld.{space}{vector}.b32 {names}, [{address}];")
        return out

    def store(self, values: Registers, address: str, space: str = "shared", guard: str = "") -> None:
        """Words of 32 bits, up to four per instruction, where the predicate ``guard`` holds."""
        name, _, offset = address.partition("+")
        for first in range(0, len(values), 4):
            four = values[first : first + 4]
            names, vector = (f"{{{','.join(four)}}}", f".v{len(four)}") if len(four) > 1 else (four[0], "")
            at = f"{name}+{int(offset or 0) + 4 * first}"
            self.lines.append(f"{f'@{guard} ' if guard else ''}st.{space}{vector}.b32 [{at}], {names};")

    def parts(self, value: str) -> tuple[str, str]:
        """A float32 as 11 bits and the next 11, the matrix unit's format (TF32); two bits at most are lost."""
        high = self.op("and.b32", value, "0xffffe000", kind="b")
        return high, self.op("sub.f32", value, high, kind="b")

    def product(self, sums: Registers, a: Registers, b: Registers) -> None:
        """sums [16, 8] += a [16, 8] b [8, 8] on the matrix unit."""
        four = f"{{{','.join(sums)}}}"
        self.lines.append(f"{MMA} {four}, {{{','.join(a)}}}, {{{','.join(b)}}}, {four};")

    def zeros(self, n: int) -> Registers:
        """Accumulators at 0."""
        return [self.op("mov.f32", "0f00000000") for _ in range(n)]

    def repeat(self, label: str, counter: str, times: int) -> None:
        """Count up and go back to ``label`` until ``times`` are done."""
        again = self.new("p")
        self.add(
            f"add.u32 {counter}, {counter}, 1;", f"setp.lt.u32 {again}, {counter}, {times};", f"@{again} bra {label};"
        )

    def finished(self) -> str:
        """The whole text, registers and shared memory declared."""
        kinds = {"f": "f32", "b": "b32", "d": "b64", "p": "pred", "h": "b16"}
        head = [f".reg .{kinds[kind]} {kind}<{max(n, 1)}>;" for kind, n in self.count.items()]
        head += [f".shared .align 16 .b8 {name}[{size}];" for name, size in self.shared.items()]
        return "\n".join(["{", *head, *self.lines, "}"])
