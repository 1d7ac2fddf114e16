"""Divisions of the time of GPUs among jobs: the programs behind policies that are optimal.

A share is the part of the time that a job has all GPUs that it needs of one type. The shares of a
job add up to its time, or less, and those of a type to its GPUs.
"""

import numpy as np

from dralab.simulation.engines.fast.interior_point import WIDE, ConeProgram, Floats


def _program(
    gains: Floats,
    capacity: Floats,
    widths: Floats,
    *,
    weight: float = 0.0,
    costs: Floats | None = None,
    rule: tuple[Floats, Floats, Floats],
    bent: bool = False,
) -> Floats:
    """Return the shares of a program with a rule for each job: its row, of t, and what is free."""
    if not capacity.all():  # a program whose solutions are all on its border cannot be solved
        there = np.flatnonzero(capacity)
        row = np.column_stack([rule[0][:, there], rule[0][:, len(capacity) :]])
        shares = np.zeros_like(gains)
        shares[:, there] = _program(
            gains[:, there],
            capacity[there],
            widths,
            weight=weight,
            costs=None if costs is None else costs[:, there],
            rule=(row, *rule[1:]),
            bent=bent,
        )
        return shares
    jobs, models = gains.shape
    own = models + bent
    rows = np.zeros((models + 2, jobs, own))
    for model in range(models):
        rows[model, :, model] = -1.0
        rows[models, :, model] = 1.0
    rows[-1] = rule[0]
    of_t, free = np.zeros((models + 2, jobs)), np.zeros((models + 2, jobs))
    free[models] = 1.0
    of_t[-1], free[-1] = rule[1], rule[2]
    curved = curve = None
    if bent:  # gain * the last variable >= 1
        curved = np.zeros((WIDE, jobs, own))
        curved[:2, :, :models] = -gains
        curved[0, :, models], curved[1, :, models] = -1.0, 1.0
        curve = np.array([0.0, 0.0, 2.0])
    found = ConeProgram(
        rows=rows,
        of_t=of_t,
        free=free,
        coupling=np.tile(widths, (models, 1)),
        capacity=capacity,
        weight=weight,
        costs=costs,
        curved=curved,
        curve=curve,
    ).solve()
    return found[:, :models].clip(0.0, 1.0)


def max_min(gains: Floats, capacity: Floats, widths: Floats) -> Floats:
    """Return the shares that make the least gain of a job as great as possible.

    >>> max_min(np.array([[4.0, 1.0], [2.0, 1.0]]), np.ones(2), np.ones(2)).round(3).tolist()
    [[0.25, 0.75], [0.75, 0.25]]
    """
    # t is the least gain with a minus.
    rule = (-gains, np.full(len(widths), -1.0), np.zeros(len(widths)))
    return _program(gains, capacity, widths, weight=1.0, rule=rule)


def at_least(gains: Floats, needs: Floats, capacity: Floats, widths: Floats) -> Floats:
    """Return shares that give each job the gain that it needs."""
    rule = (-gains, np.zeros(len(widths)), -needs)
    return _program(gains, capacity, widths, rule=rule)


def fairest_finish(
    gains: Floats, slope: Floats, offset: Floats, capacity: Floats, widths: Floats
) -> Floats:
    """Return the shares for which the greatest of `offset` + `slope` / gain is least."""
    row = np.zeros((len(widths), len(capacity) + 1))
    row[:, -1] = slope
    rule = (row, np.full(len(widths), -1.0), -offset)
    return _program(gains, capacity, widths, weight=1.0, rule=rule, bent=True)


def most_throughput(speeds: Floats, capacity: Floats, widths: Floats) -> Floats:
    """Return the shares with which all jobs together make the most steps per second.

    >>> speeds = np.array([[4.0, 1.0], [2.0, 1.0]])
    >>> most_throughput(speeds, np.ones(2), np.ones(2)).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    nothing = np.zeros(len(widths))
    rule = (np.zeros_like(speeds), nothing, nothing + 1.0)
    return _program(speeds, capacity, widths, costs=-speeds / speeds.max(), rule=rule)
