"""Fixtures of the tests with real programs."""

from web.chromium import browser  # noqa: F401 - a fixture
