"""Samples in columns: added one by one, read in between."""

import random

from dralab.simulation.results.result import MOST_ROWS, SampleColumns, StateSample


def kept(samples):
    """The samples that stay, by the plain rule."""
    found = []
    for sample in samples:
        if found and found[-1].when == sample.when:
            found[-1] = sample
        elif not found or found[-1][1:] != sample[1:]:
            found.append(sample)
    return found


def test_samples_of_one_time_replace_each_other_also_after_they_were_read():
    draw, when, given = random.Random(1), 0, []
    columns = SampleColumns(2)
    for _ in range(5 * MOST_ROWS):
        when += draw.choice([0, 0, 1, 3])
        types = (draw.randint(0, 1), 0)
        given.append(StateSample(when, draw.randint(0, 1), 1, 5, 6, 0.5, types=types))
        columns.add(given[-1])
        if draw.random() < 0.1:
            assert columns[-1] == given[-1] or columns[-1][1:] == given[-1][1:]
            assert len(columns) == len(kept(given))
    assert len(columns) > 2 * MOST_ROWS
    assert columns == kept(given)
