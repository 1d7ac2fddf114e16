"""Allocations by a policy: on one node, and the best of many nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dralab.allocation import v1
from dralab.allocation.policy.policies import Policy
from dralab.allocation.policy.scoring import Look, Wanted, Worth
from dralab.allocation.problem import DeviceClass, Features
from dralab.allocation.search.alternatives import RefusedError, Term
from dralab.allocation.search.backtracking import Effort
from dralab.allocation.search.eligibility import Eligibility
from dralab.allocation.search.node_devices import Board, State, bits
from dralab.allocation.search.reduction import Cost, cheapest
from dralab.allocation.search.setup import Picked, Setup, prepare_terms
from dralab.allocation.selectors import CelEnvironment

Demand = Sequence[tuple[Term, float]]


def demand_of(policy: Policy, classes: Mapping[str, DeviceClass], features: Features) -> Demand:
    """Return the requests that a policy names as likely, each with its worth."""
    found = []
    named: Iterable[tuple[Mapping[str, Any], float]] = getattr(policy, "demand", ())
    reader = v1.Reader(CelEnvironment())
    for wire, worth in named:
        try:
            terms = prepare_terms([reader.claim(wire)], classes, features)
        except RefusedError:
            # What no node could serve is not likely to be asked here.
            continue
        found.append((terms[0][0][0], worth))
    return found


def worth_on(
    board: Board,
    eligibility: Eligibility,
    demand: Demand,
    requests: Iterable[Iterable[Term]],
) -> Worth:
    """Return what a board is good for; without a demand, for requests like these."""
    if demand:
        return Worth(board, eligibility, [Wanted(term, worth) for term, worth in demand])
    terms = [term for request in requests for term in request]
    wanted = [Wanted(term, _part(board, eligibility, term)) for term in terms]
    return Worth(board, eligibility, wanted)


def _part(board: Board, eligibility: Eligibility, term: Term) -> float:
    """Return the largest part of a unit that a device of a request draws; 1 for plain devices."""
    part = 0.0
    mask = Worth(board, eligibility, [Wanted(term, 1.0)]).masks[0]
    for number in bits(mask):
        draw = board.draws[number]
        if draw is None:
            return 1.0
        total = board.units[draw.unit].total.counters
        parts = [
            float(amount) / float(total[place]) for place, amount in draw.amounts if total[place]
        ]
        part = max(part, sum(parts) / max(len(total), 1))
    return part or 1.0


def cost_by(policy: Policy, board: Board, worth: Worth) -> Cost:
    """Return the cost of a change of state in the eyes of a policy."""
    looks: dict[int, tuple[State, Look]] = {}

    def look(state: State) -> Look:
        known = looks.get(id(state))
        if known is None or known[0] is not state:
            known = looks[id(state)] = (state, Look(board, state, worth))
        return known[1]

    def cost(before: State, after: State) -> float:
        return policy.cost(look(before), Look(board, after, worth))

    return cost


def chosen_by(
    policy: Policy, setup: Setup, effort: Effort, worth: Worth
) -> tuple[tuple[Picked, ...], float] | None:
    """Return the devices that a policy chooses on one node, and what the choice costs."""
    cost = cost_by(policy, setup.board, worth)
    picked = cheapest(setup, effort, cost)
    if picked is None:
        return None
    return picked, cost(setup.start, after(setup, picked))


def after(setup: Setup, picked: Sequence[Picked]) -> State:
    """Return the state once all of these are taken."""
    state = setup.start
    for each in picked:
        if each.term.admin:
            continue
        for number in each.devices:
            shared = setup.board.shareable >> number & 1
            amounts = setup.eligibility.amounts(each.term, number) if shared else None
            following = setup.board.take(state, number, amounts)
            if following is not None:
                state = following
    return state
