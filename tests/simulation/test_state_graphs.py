"""Whatever a run keeps comes back as it was: values, kinds, and who refers to whom."""

import json
import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dralab.kernel.events import Events
from dralab.kernel.randomness import Randomness
from dralab.simulation.lifecycle.agenda import Agenda, AgendaEntry
from dralab.simulation.platforms.platform import Power
from dralab.simulation.state_graphs import decoded, encoded

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
KEYS = st.recursive(
    SCALARS, lambda below: st.tuples(below, below) | st.frozensets(below), max_leaves=5
)
VALUES = st.recursive(
    SCALARS,
    lambda below: (
        st.lists(below)
        | st.tuples(below, below)
        | st.dictionaries(KEYS, below)
        | st.sets(KEYS)
        | st.lists(below).map(deque)
        | st.dictionaries(KEYS, below).map(OrderedDict)
        | st.dictionaries(KEYS, below).map(partial(defaultdict, list))
        | st.dictionaries(KEYS, st.integers()).map(Counter)
    ),
    max_leaves=20,
)


def again(state):
    return decoded(json.loads(json.dumps(encoded(state))))


def kinds(value):
    """The kinds of a value and its parts: 1 is equal to 1.0 and True."""
    if isinstance(value, dict):
        return [type(value), [[kinds(key), kinds(part)] for key, part in value.items()]]
    if isinstance(value, list | tuple | deque):
        return [type(value), [kinds(part) for part in value]]
    return type(value)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_values_come_back(value):
    found = again(value)
    assert found == value
    assert kinds(found) == kinds(value)


def test_objects_that_refer_to_each_other_do_so_again():
    shared = [1]
    state = {"a": shared, "b": (shared, shared)}
    state["self"] = state
    found = again(state)
    assert found["a"] is found["b"][0] is found["b"][1]
    assert found["self"] is found


def test_a_long_chain_needs_no_recursion():
    chain = []
    for _ in range(20_000):
        chain = [chain]
    found, depth = again(chain), 0
    while found:
        (found,) = found
        depth += 1
    assert depth == 20_000


def test_keys_have_their_attributes_before_they_are_hashed():
    power = Power(1.0, 2.0, 3.0)
    entry = AgendaEntry(1, 2, "a", "b", {"c": 3})
    state = {(power, frozenset({(power, 1)})): entry, "all": {power, frozenset({power})}}
    assert again(state) == state
    assert again([state, power])[0] == state


def test_numbers_that_json_has_not_come_back():
    found = again([math.inf, -math.inf, math.nan, -0.0, 10**400, -(2**63) - 1, 2**64])
    assert math.isnan(found.pop(2))
    assert found == [math.inf, -math.inf, -0.0, 10**400, -(2**63) - 1, 2**64]
    assert math.copysign(1, found[2]) == -1


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array([], dtype=np.float64),
        np.array([True, False]),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.float64(1.5),
        np.int64(7),
    ],
)
def test_arrays_come_back_and_can_be_written(array):
    found = again(array)
    assert type(found) is type(array)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    if isinstance(found, np.ndarray):
        found[...] = 0


def test_chance_goes_on_where_it_was():
    state = random.Random(1)
    state.gauss(0, 1)
    found = again(state)
    assert [found.random() for _ in range(3)] == [state.random() for _ in range(3)]
    streams = Randomness(3)
    streams.stream("a").random()
    assert again(streams).stream("a").random() == streams.stream("a").random()


def test_what_happens_next_is_kept_with_whom_it_happens_to():
    agenda = Agenda(Events())
    agenda.methods = {"over": agenda.cancel, "partly": partial(agenda.schedule, 1, whom="x")}
    agenda.schedule(5, 0, "over", "a", count=2)
    found = again(agenda)
    assert found.entries() == agenda.entries()
    assert found.methods["over"].__self__ is found
    assert found.methods["partly"].func.__self__ is found
    assert found.methods["partly"].keywords == {"whom": "x"}
    assert found.next_time() == 5
