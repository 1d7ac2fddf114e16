"""What holds for all tests."""

from hypothesis import settings

# Timing decides nothing: a busy machine is no reason to fail.
settings.register_profile("dralab", deadline=None)
settings.load_profile("dralab")
