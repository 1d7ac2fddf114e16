"""What schedulers believe of trainings, and the GPUs that they give them by it."""

import numpy as np
import pytest

from dralab.simulation.engines.fast.goodput import (
    GoodputModel,
    StepModel,
    fitted,
    measurements,
)
from dralab.simulation.engines.fast.goodput_shares import least_cost
from dralab.simulation.workloads.training_profiles import StepTime

# Half a second and 1 ms a sample; between nodes 0.2 s, and 0.02 s for each further GPU.
TRUE = StepModel(0.5, 0.001, 0.2, 0.02, 0.1, 0.01, 1.0)


def model(**more):
    options = {
        "steps": TRUE, "gradient": (1.0, 0.0), "smallest": 100, "largest": 800,
        "smallest_local": 50, "largest_local": 200, **more,
    }  # fmt: skip
    return GoodputModel(**options)


def step(nodes, gpus, local):
    computing = float(TRUE.computing(local))
    sync = float(TRUE.synchronising(np.array(nodes), np.array(gpus)))
    return StepTime(computing + sync, sync)


def test_a_model_is_found_again_from_its_steps():
    pytest.importorskip("scipy", reason="fitting needs SciPy")
    places = [(1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16)]
    seen = {(n, g, local): step(n, g, local) for n, g in places for local in (50, 100, 200)}
    found = fitted(measurements(seen))
    assert found.compute == pytest.approx(TRUE.compute, rel=0.1)
    assert found.compute_each == pytest.approx(TRUE.compute_each, rel=0.3)
    for (nodes, gpus, local), time in seen.items():
        log = found.log_step(
            found.computing(local), found.synchronising(np.array(nodes), np.array(gpus))
        )
        assert float(np.exp(log)) == pytest.approx(time.step, rel=0.05)


def test_what_was_never_seen_is_taken_to_cost_nothing():
    pytest.importorskip("scipy", reason="fitting needs SciPy")
    alone = fitted(measurements({(1, 1, 100): step(1, 1, 100)}))
    more = alone.synchronising(np.array(4), np.array(16))
    assert float(more) < 1e-6


def test_without_noise_a_large_batch_has_no_use():
    # The smallest batch of 100, as far as GPUs hold at least 50 of it.
    best = model().best([1, 1], [1, 2])
    assert best.local.tolist() == [100, 50]
    assert best.parts.tolist() == [1, 1]


def test_with_noise_each_sample_counts_and_batches_grow():
    best = model(gradient=(0.0, 1.0)).best([1, 2], [1, 8])
    # One GPU computes 800 samples in four parts; eight hold 100 each.
    assert (best.local * best.parts * [1, 8]).tolist() == [800, 800]
    assert best.values[1] > best.values[0]


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        pytest.param([None, None, None], [0, 1, None], id="the cheapest that fit"),
        pytest.param([1, None, None], [1, 0, None], id="one keeps what it has"),
        pytest.param([None, None, 0], [1, None, 0], id="at any cost"),
    ],
)
def test_each_row_gets_one_column_so_that_costs_are_least(fixed, expected):
    pytest.importorskip("ortools", reason="the integer program needs OR-Tools")
    costs = np.array([[-0.9, -0.5], [-0.6, -0.4], [-0.1, 0.3]])
    # One of each type.
    assert least_cost(costs, np.eye(2), [1.0, 1.0], fixed) == expected
