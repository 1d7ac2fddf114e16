"""Speeds by kind, model and number of GPUs, as Gavel's simulator has them."""

import orjson
import pytest

from dralab.scenarios.errors import InputError
from dralab.simulation.engines.fast.rounds import GpuSlice
from dralab.simulation.engines.fast.speed_table import read_speeds


def written(tmp_path, content):
    """Return the path of a table of speeds."""
    path = tmp_path / "speeds.json"
    path.write_bytes(orjson.dumps(content))
    return path


def test_speeds_alone_and_beside_others(tmp_path):
    table = {
        "v100": {
            "('LM', 1)": {"null": 4.0, "('A3C', 1)": [3.0, 1.5]},
            "('A3C', 1)": {"null": 2.0, "('LM', 1)": [1.5, 3.0]},
        }
    }
    speeds = read_speeds(written(tmp_path, table))
    assert speeds("LM", GpuSlice("v100")) == 4.0
    assert speeds("LM", GpuSlice("v100", beside=("A3C",))) == 3.0
    assert speeds("A3C", GpuSlice("v100", beside=("LM",))) == 1.5
    with pytest.raises(InputError, match="has no speed of 'LM' on 2 GPUs of v100"):
        speeds("LM", GpuSlice("v100", 2))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], "is not a table of speeds"),
        ({"v100": {"LM": {}}}, "'LM' is not a kind and a number of GPUs"),
        ({"v100": {"('LM', 1)": {"null": "fast"}}}, "is not a table of speeds"),
        ({"v100": {"('LM', 1)": {"('LM', 1)": []}}}, "is not a table of speeds"),
    ],
)
def test_a_file_without_speeds_is_refused(tmp_path, content, told):
    with pytest.raises(InputError, match=told):
        read_speeds(written(tmp_path, content))
