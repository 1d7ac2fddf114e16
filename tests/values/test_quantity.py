from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.values import quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1500m", "1500m"),
        ("1024Mi", "1Gi"),
        ("2048Mi", "2Gi"),
        ("2.0", "2"),
        ("0.5Gi", "512Mi"),
        ("1000k", "1M"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("0.1n", "1n"),
        ("-1.5", "-1500m"),
        ("1.5Ki", "1536"),
        ("512", "512"),
    ],
)
def test_a_quantity_is_stored_in_its_canonical_form(text, canonical):
    assert quantity.canonical(text) == canonical


@pytest.mark.parametrize("text", ["", "abc", "1..2", "1Kib", "1 Gi", "--1", "1e", "1e9999999"])
def test_a_text_that_is_no_quantity_is_refused(text):
    assert not quantity.is_quantity(text)


@given(
    st.integers(-(10**15), 10**15),
    st.sampled_from([*quantity.BINARY, "m", "", "k", "M", "e3"]),
)
def test_the_canonical_form_stands_for_the_same_number_and_is_stable(number, suffix):
    text = f"{number}{suffix}"
    stored = quantity.canonical(text)
    assert quantity.parse(stored) == quantity.parse(text)
    assert quantity.canonical(stored) == stored


def test_a_fraction_stays_exact():
    assert quantity.parse("100m") == Fraction(1, 10)
