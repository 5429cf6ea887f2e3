"""Puts tests/support on the path (tests have no package of their own) and loads the Hypothesis profile."""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))

from profiles import chosen_profile, register_profiles

register_profiles()
settings.load_profile(chosen_profile(os.environ))
