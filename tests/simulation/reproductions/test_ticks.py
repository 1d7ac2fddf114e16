"""k8s-cluster-simulator's own program beside the `ticks` scheduler."""

import numpy as np
import pytest

from dralab.simulation.reproductions.registry import named
from dralab.simulation.reproductions.ticks import _pods

CASES = {case.name: case for case in named("k8s-cluster-simulator").cases}


def test_the_pods_are_those_that_its_program_was_given():
    pods = list(_pods())
    assert len(pods) == 300
    assert pods[3] == {
        "name": "pod-003", "at": "210s", "duration": "690s", "cpu": 4, "memory": "3Gi", "gpus": 1,
    }  # fmt: skip
    assert pods[-1] == {
        "name": "pod-299", "at": "23280s", "duration": "280s", "cpu": 4, "memory": "2Gi", "gpus": 0,
    }  # fmt: skip
    assert np.unique([pod["at"] for pod in pods]).size == 300


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_its_program_are_met(name):
    rows = list(CASES[name].run([], 0))
    assert [row.verdict for row in rows] == ["agrees"] * 3
    if name == "one-node":
        assert [row.ours for row in rows[1:]] == [25680, 48960]
