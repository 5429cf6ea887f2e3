"""Judge a right and a wrong port, real capture included, and print both verdicts."""

import os
import sys

from proofs_checks.cli import main

PORTS = os.path.join(os.path.relpath(os.path.dirname(os.path.abspath(__file__))), "ports")


def demo() -> int:
    """Exit 0 if the right port passes and the wrong one fails."""
    right = main(["verify", os.path.join(PORTS, "numpy_port.py")])
    print()
    wrong = main(["verify", os.path.join(PORTS, "broken_smallest_modes.py")])
    return 0 if (right, wrong) == (0, 1) else 1


if __name__ == "__main__":
    sys.exit(demo())
