"""Settings of all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# a busy machine is no defect, and a change is judged on the same examples each time
settings.register_profile("default_examples", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)  # HYPOTHESIS_PROFILE=explore looks for new ones
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default_examples"))


@pytest.hookimpl(tryfirst=True)  # before the one in which xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file go to one worker, as they share what they made, unless their file groups them itself."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
