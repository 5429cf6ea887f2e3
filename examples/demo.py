"""Judge a right and a wrong port, real capture included, and print both verdicts."""

import sys
from pathlib import Path

from proofs_checks.cli import main

PORTS = Path(__file__).parent / "ports"


def demo() -> int:
    """Exit 0 if the right port passes and the wrong one fails."""
    right = main(["verify", str(PORTS / "numpy_port.py")])
    print()
    wrong = main(["verify", str(PORTS / "broken_smallest_modes.py")])
    return 0 if (right, wrong) == (0, 1) else 1


if __name__ == "__main__":
    sys.exit(demo())
