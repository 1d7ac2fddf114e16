import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.simulation.host_sets import lowest, members, parse, render

SETS = st.sets(st.integers(0, 300))


def from_members(wanted):
    """The set of some machines, the slow and obvious way."""
    return sum(1 << member for member in set(wanted))


@given(SETS)
def test_the_text_of_a_set_reads_back_as_the_set(wanted):
    assert set(members(parse(render(from_members(wanted))))) == wanted


@given(SETS)
def test_the_text_is_canonical_however_the_set_was_written(wanted):
    scattered = " ".join(str(item) for item in sorted(wanted, key=lambda item: (item * 7) % 31))
    text = render(parse(scattered))
    assert text == render(from_members(wanted))
    assert len(text.split()) == sum(item - 1 not in wanted for item in wanted)


@given(SETS, st.data())
def test_the_lowest_machines_are_the_first_of_the_sorted_ones(wanted, data):
    count = data.draw(st.integers(0, len(wanted)))
    assert set(members(lowest(from_members(wanted), count))) == set(sorted(wanted)[:count])


@pytest.mark.parametrize("text", ["a", "3-", "5-3", "-1", "1--2", "99999999999", "0-9999999"])
def test_a_text_that_is_no_set_is_refused(text):
    with pytest.raises(ValueError, match=r"interval|before|below"):
        parse(text)
