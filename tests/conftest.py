"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# a busy machine is no defect, and a change is judged on the same examples each time
settings.register_profile("default_examples", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)  # HYPOTHESIS_PROFILE=explore looks for new ones
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default_examples"))
