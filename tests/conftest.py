"""Makes tests/support importable by the tests (they have no package of their own)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))
