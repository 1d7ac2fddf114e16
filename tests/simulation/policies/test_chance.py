# ruff: noqa: TID251, DTZ005 - what policies should not do
"""Chance and clocks that the seed of a run does not decide are noted with their line."""

import os
import random
import secrets
import time
import uuid
from datetime import datetime
from random import random as draw

import numpy as np
import pytest

import dralab
from dralab.simulation.policies.chance import unseeded

FLEET = {"nodes": [{"name": "n", "cpu": 8}]}
SCENARIO = {"fleet": FLEET, "workload": {"pods": [{"name": "p", "cpu": 1, "duration": "1m"}]}}
RNG = random.Random(1)
DICE = random.Random()


def helper():
    return uuid.uuid4().int


def made(body):
    class Mine(dralab.Policy):
        prefer = body

    return Mine


UNSEEDED = {
    "random.random": lambda self, task, node: random.random(),
    "random.choice": lambda self, task, node: random.choice([1, 2]),
    "draw": lambda self, task, node: draw(),
    "time.time": lambda self, task, node: time.time(),
    "time.monotonic_ns": lambda self, task, node: time.monotonic_ns(),
    "os.urandom": lambda self, task, node: os.urandom(1)[0],
    "uuid.uuid4": lambda self, task, node: helper(),
    "datetime.now": lambda self, task, node: datetime.now().second,
    "np.random.rand": lambda self, task, node: np.random.rand(),
    "np.random.default_rng": lambda self, task, node: np.random.default_rng().random(),
    "random.Random": lambda self, task, node: random.Random().random(),
    "secrets.choice": lambda self, task, node: secrets.choice([1, 2]),
    "os.getpid": lambda self, task, node: os.getpid(),
    "hash": lambda self, task, node: hash(node.name),
    "id": lambda self, task, node: id(node),
    "drawn": lambda self, task, node, drawn=random.random: drawn(),
    "random.SystemRandom": lambda self, task, node: random.SystemRandom().random(),
}
SEEDED = [
    lambda self, task, node: self.rng.random(),
    lambda self, task, node: self.state.now,
    lambda self, task, node: RNG.random(),
    lambda self, task, node: random.Random(task.name).random(),
    lambda self, task, node: np.random.default_rng(5).random(),
    lambda self, task, node: time.gmtime(0).tm_year,
]


def test_chance_that_a_class_has_by_another_name_is_found():
    class Mine(dralab.Policy):
        dice = staticmethod(random.random)

        def prefer(self, task, node):
            return self.dice()

    (use,) = unseeded(Mine)
    assert (use.file, use.name) == (__file__, "Mine.dice")


@pytest.mark.parametrize("name", UNSEEDED)
def test_what_no_seed_decides_is_found(name):
    (found,) = unseeded(made(UNSEEDED[name]))
    assert found.name == name
    assert found.file == __file__
    assert found.line > 1


@pytest.mark.parametrize("body", SEEDED)
def test_what_a_seed_decides_is_not(body):
    assert unseeded(made(body)) == []


def test_an_import_in_a_method_is_followed():
    class Mine(dralab.Policy):
        def prefer(self, task, node):
            import secrets
            from time import time as now

            return now() + secrets.randbelow(3)

    assert {each.name for each in unseeded(Mine)} == {"now", "secrets.randbelow"}


def test_a_run_notes_it():
    class Dice(dralab.Policy):
        def prefer(self, task, node):
            return random.random()

    (note,) = dralab.simulate(SCENARIO, scheduler=Dice).notes
    assert note.startswith(f"{__file__}:")
    assert "random.random is not decided by the seed: runs differ" in note


def test_a_seeded_policy_gives_the_same_run_each_time():
    class Dice(dralab.Policy):
        def prefer(self, task, node):
            return self.rng.random()

    scenario = {**SCENARIO, "fleet": {"nodes": [{"name": "n", "count": 9, "cpu": 8}]}}
    one, other = (dralab.simulate(scenario, scheduler=Dice, seed=4) for _ in range(2))
    assert one.tasks.rows == other.tasks.rows
    assert one.notes == []
