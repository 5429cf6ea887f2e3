"""How files are written: whole or not at all, and JSON in one form."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_whole(path: str | Path, text: str) -> None:
    """Write a file so that it appears whole or not at all. Raises OSError.

    A link's target is written, not the link replaced; what is no regular file (a device, a pipe) is written into.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        with path.open("w") as stream:
            stream.write(text)
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def dump_json(value: Mapping[str, Any]) -> str:
    """JSON as this project writes it: indented, one newline at the end, no NaN."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
