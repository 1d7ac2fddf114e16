from itertools import pairwise

import pytest

from dralab.values.version import Version

ORDER = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.10.0",
]


def test_versions_are_ordered_as_semver_orders_them():
    for low, high in pairwise(ORDER):
        assert Version.parse(low) < Version.parse(high)


def test_build_metadata_takes_no_part():
    assert Version.parse("1.0.0+a") == Version.parse("1.0.0+b")


@pytest.mark.parametrize("text", ["1", "1.2", "v1.2.3", "01.2.3", "1.2.3-01", "1.2.3 "])
def test_a_text_that_is_no_version_is_refused(text):
    with pytest.raises(ValueError, match="not a semantic version"):
        Version.parse(text)
