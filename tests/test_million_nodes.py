"""The page about a million nodes says what its benchmark measures, where time plays no part."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from dralab.apiserver.protobuf.encoding import encode

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "concepts" / "million-nodes.md").read_text()


@pytest.fixture(scope="module")
def samples():
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module("benchmarks.million_nodes").samples()
    finally:
        sys.path.remove(str(ROOT))


def test_objects_have_the_size_that_the_page_states(samples):
    objects, _ = samples
    assert objects
    for name, value in objects.items():
        found = re.search(rf"^\| {name}[^|]*\| ([\d,]+) \| ([\d,]+) \|", PAGE, re.MULTILINE)
        stated = [int(number.replace(",", "")) for number in found.groups()] if found else []
        sizes = [len(json.dumps(value, separators=(",", ":"))), len(encode(value))]
        # Names and versions differ a little from release to release.
        assert stated == [pytest.approx(size, rel=0.05) for size in sizes], name


def test_a_pod_starts_with_the_writes_that_the_page_states(samples):
    _, writes = samples
    assert {name: each.total() for name, each in writes.items()} == {
        name: int(total)
        for name, total in re.findall(r"^a pod (.*): (\d+) writes", PAGE, re.MULTILINE)
    }
