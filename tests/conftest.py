"""What holds for all tests."""

import os

from hypothesis import HealthCheck, settings

# The same examples every time, so that a run can be repeated; DRALAB_EXPLORE looks for new ones.
# Timing decides nothing: a busy machine is no reason to fail.
settings.register_profile(
    "dralab",
    deadline=None,
    derandomize="DRALAB_EXPLORE" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dralab")
