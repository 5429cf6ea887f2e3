"""The public face of kvproof: what users may rely on, re-exported from where it lives. Importing it loads no torch.

>>> import kvproof
>>> "locks_decode" in kvproof.STAGES
True
"""

from proofs_checks.capture import Capture, CaptureError, load_capture, shipped_capture
from proofs_checks.judge.report import Report, StageReport
from proofs_checks.judge.stages import STAGES, Stage
from proofs_checks.judge.verify import verify
from proofs_checks.numbers import Precision
from proofs_checks.version import version

__version__ = version()

__all__ = [
    "STAGES",
    "Capture",
    "CaptureError",
    "Precision",
    "Report",
    "Stage",
    "StageReport",
    "load_capture",
    "shipped_capture",
    "verify",
]
