"""Rows of nodes in a bit set."""

import pytest

from dralab.scheduling.devices import FEW_BITS, rows_of


@pytest.mark.parametrize("count", [0, 1, 2, FEW_BITS, FEW_BITS + 1, 500])
def test_the_rows_of_a_bit_set_are_in_order_however_many_they_are(count):
    rows = [number * 7 + 3 for number in range(count)]
    assert rows_of(sum(1 << row for row in rows)).tolist() == rows
