"""`diagnose`: the cause of a "no", and what would help."""

from collections.abc import Mapping, Sequence
from functools import partial

from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Node, Problem
from dralab.explanation.causes import Diagnosis
from dralab.explanation.causes_of import cause_of
from dralab.explanation.explain import node_groups
from dralab.explanation.helps import MOST_HELPS, helps_for
from dralab.explanation.holders import HolderEnd
from dralab.explanation.inquiry import Inquiry
from dralab.explanation.questions import MOST_QUESTIONS, FleetQuestions


def diagnose(
    problem: Problem,
    nodes: Sequence[Node],
    *,
    subject: str = "",
    catalog: SliceCatalog | None = None,
    budget: int = DEFAULT_BUDGET,
    questions: int = MOST_QUESTIONS,
    refused: bool = False,
    earlier: FleetQuestions | None = None,
    ends: Mapping[str, HolderEnd] | None = None,
    most: int = MOST_HELPS,
) -> Diagnosis | None:
    """Return why no node can serve the claims of a problem, and what would help.

    None where one can. `subject` names what waits (`pod ml/train`); `budget` limits the steps of
    each question to the allocator, `questions` their number. `refused`: the search ended with an
    error although some node could serve them. `earlier` are questions about other claims on the
    same nodes: what was found out about these is not found out again. `ends` says when the users of
    claims end, by claim; at most `most` helps are told.
    """
    asking = (
        FleetQuestions(problem, nodes, catalog=catalog, budget=budget, questions=questions)
        if earlier is None
        else earlier.about(problem, questions)
    )
    inquiry = Inquiry(asking, ends or {})
    cause = cause_of(inquiry, refused=refused)
    if cause is None:
        return None
    helps = helps_for(inquiry, cause, most)
    return Diagnosis(
        subject=subject or ", ".join(f"claim {claim}" for claim in problem.claims),
        cause=cause,
        helps=helps,
        nodes=len(asking.fleet),
        grouped=partial(node_groups, asking),
        error=asking.error,
        settled=asking.allowance.left >= 0 and cause.code != "DRA060",
    )
