"""`dralab/Devices-v0`: gymnasium's checker, masks, seeds, and the fast engine beside it."""

import numpy as np
import pytest

import dralab

gymnasium = pytest.importorskip("gymnasium", reason="the extra gym is not installed")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from dralab.gym import DevicesEnv  # noqa: E402

SMALL = {
    "name": "small",
    "fleet": {"nodes": [{"name": "n", "count": 3, "cpu": 32, "gpus": 4}]},
    "workload": {
        "generate": {
            "count": 60,
            "arrivals": {"process": "poisson", "over": "4h"},
            "duration": {"distribution": "exponential", "mean": "40m"},
            "pods": [
                {"cpu": 2, "gpus": 1, "gpu_milli": 500},
                {"cpu": 4, "gpus": 2},
                {"cpu": 4, "gpus": 4},
            ],
        }
    },
}


def first(mask):
    return int(mask.argmax())


def played(env, choose=first, seed=1):
    """Return the actions, and the sum of the rewards, of an episode."""
    _, info = env.reset(seed=seed)
    over, total, actions = False, 0.0, []
    while not over:
        actions.append(choose(info["action_mask"]))
        _, reward, over, truncated, info = env.step(actions[-1])
        assert not truncated
        total += reward
    return actions, total


@pytest.mark.parametrize("decide", ["place", "queue"])
def test_the_checker_of_gymnasium_passes(decide):
    env = gymnasium.make("dralab/Devices-v0", scenario=SMALL, decide=decide, render_mode="ansi")
    check_env(env.unwrapped)


@pytest.mark.parametrize("decide", ["place", "queue"])
def test_an_episode_is_that_of_a_new_environment(decide):
    def seen(env, steps):
        observation, info = env.reset(seed=5)
        found = [(observation, info["action_mask"])]
        for _ in range(steps):
            observation, _, over, _, info = env.step(first(info["action_mask"]))
            found.append((observation, info["action_mask"]))
            if over:
                break
        return found

    env = DevicesEnv(SMALL, decide=decide)
    env.reset(seed=1)
    for _ in range(20):  # pods run when the next episode begins
        env.step(0)
    assert env._ends
    for old, new in zip(seen(env, 99), seen(DevicesEnv(SMALL, decide=decide), 99), strict=True):
        np.testing.assert_equal(old, new)


@pytest.mark.parametrize("decide", ["place", "queue"])
def test_the_rewards_are_the_mean_wait(decide):
    env = DevicesEnv(SMALL, decide=decide)
    actions, total = played(env)
    waits = env._waited / len(env._tasks) / env._mean
    assert waits > 0.01
    assert total == pytest.approx(-waits)
    assert len(actions) >= 60
    assert played(env) == (actions, total)
    assert played(env, seed=2)[1] != total


def test_a_mask_says_where_a_task_fits_and_other_actions_wait():
    scenario = {**SMALL, "workload": {"pods": [
        {"name": "wide", "cpu": 4, "gpus": 4, "duration": "1h", "count": 2},
        {"name": "late", "cpu": 4, "gpus": 4, "duration": "1h", "at": "10m"},
    ]}}  # fmt: skip
    env = DevicesEnv(scenario)
    seen, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [1, 1, 1, 1]
    seen, _, _, _, info = env.step(1)
    assert info["action_mask"].tolist() == [1, 0, 1, 1]
    assert seen["nodes"][1].tolist() == pytest.approx([28 / 32, 1, 0, 0, 0, 0])
    _, _, _, _, info = env.step(1)  # it is full: the task waits for the next change
    assert info["time"] == 600
    assert info["waiting"] == 2


def test_tasks_of_the_window_are_chosen_in_any_order():
    scenario = {**SMALL, "fleet": {"nodes": [{"name": "n", "cpu": 8, "gpus": 4}]}, "workload": {"pods": [
        {"name": "long", "cpu": 4, "gpus": 4, "duration": "3h"},
        {"name": "short", "cpu": 4, "gpus": 4, "duration": "1h"},
    ]}}  # fmt: skip
    env = DevicesEnv(scenario, decide="queue", window=4)
    seen, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [1, 1, 0, 0, 1]
    assert seen["tasks"][0][4] > seen["tasks"][1][4] > 0
    _, _, over, _, info = env.step(1)
    assert (over, info["time"], info["action_mask"].tolist()) == (False, 3600, [1, 0, 0, 0, 1])
    with pytest.raises(ValueError, match="decide: 'both' is not one of"):
        DevicesEnv(SMALL, decide="both")


def test_first_fit_places_as_the_fast_engine_does():
    light = {**SMALL["workload"]["generate"], "arrivals": {"process": "poisson", "over": "80h"}}
    scenario = {**SMALL, "workload": {"generate": light}}
    env = DevicesEnv(scenario)
    env.reset(seed=5)
    seed = int(np.random.Generator(env.np_random.bit_generator.__class__(5)).integers(1 << 31))
    actions, total = played(env, seed=5)
    run = dralab.simulate(scenario, scheduler="firstfit", seed=seed)
    assert total == 0
    assert run.summary["wait_max"] == 0
    tasks = sorted(run.tasks, key=lambda row: row["submitted"])
    assert [row["places"].split()[0].split("/")[0] for row in tasks] == [
        f"n-{at}" for at in actions
    ]


@pytest.mark.parametrize("action", [-1, 10**9, 1.5])
def test_an_action_that_does_not_exist_is_refused(action):
    env = gymnasium.make("dralab/Devices-v0", scenario=SMALL, decide="queue")
    env.reset(seed=1)
    with pytest.raises(ValueError, match="is not a number from 0 to "):
        env.step(action)


def test_environments_run_side_by_side():
    envs = gymnasium.make_vec(
        "dralab/Devices-v0", num_envs=3, vectorization_mode="sync", scenario=SMALL
    )
    seen, info = envs.reset(seed=1)
    assert seen["nodes"].shape == (3, 3, 6)
    for _ in range(150):
        actions = np.array([first(mask) for mask in info["action_mask"]])
        seen, rewards, _, _, info = envs.step(actions)
    assert rewards.shape == (3,)
    envs.close()


def test_what_an_environment_cannot_have_is_refused():
    endless = {"pods": [{"name": "g", "cpu": 1}]}
    with pytest.raises(dralab.InputError, match="with a duration, without gangs"):
        DevicesEnv({**SMALL, "workload": endless})
    with pytest.raises(dralab.InputError, match="neither faults nor queues"):
        DevicesEnv({**SMALL, "faults": [{"at": "1h", "node": "n-0"}]})
