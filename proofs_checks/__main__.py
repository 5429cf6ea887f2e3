"""``python -m proofs_checks`` is the command `kvproof`."""

import sys

from proofs_checks.cli import main

if __name__ == "__main__":
    sys.exit(main())
