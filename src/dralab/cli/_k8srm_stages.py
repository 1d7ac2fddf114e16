"""`dralab allocate` for files of k8srm's stages K0 and K1: nodes, and one pod's claim."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.cli import generations
from dralab.cli._output import refuse
from dralab.cli._terminal import echo
from dralab.prototypes.k8srm.early import checking, model, scheduling, tree
from dralab.prototypes.k8srm.expressions import K8srmExpressions
from dralab.prototypes.k8srm.reading import attributes

MARKS: Final = (b"podClaim:", b"containerClaims:")


def are_stages(files: Sequence[str]) -> bool:
    """Return whether files hold the claim of a first stage."""
    return generations.holds(files, MARKS)


def allocate_stages(files: Sequence[str], *, verbose: bool) -> int:
    """Print whether a pod fits, and the tree of the chosen node (verbose: of every node).

    Returns 0 if it fits, 1 if it does not.
    """
    nodes: list[Any] = []
    pods: list[Any] = []
    problems: list[str] = []
    for origin, item, lines in generations.raw(files):
        is_list = isinstance(item, list)
        (nodes if is_list else pods).append(item)
        check = checking.nodes_problems if is_list else checking.pod_problems
        for finding in check(item):
            number = generations.nearest_line(lines, finding.field) or origin.line
            problems.append(f"{origin.file}:{number}: {finding}")
    if not problems and (len(nodes), len(pods)) != (1, 1):
        problems = [f"expected one list of nodes and one claim, found {len(nodes)} and {len(pods)}"]
    refuse(problems)
    expressions = K8srmExpressions()

    def meets(text: str, values: Any) -> bool:
        items = [{"name": name, **value} for name, value in values.items()]
        return expressions.get(text).value(attributes(items))

    results = scheduling.schedule(model.read_nodes(nodes[0]), model.read_pod(pods[0]), meets)
    winner = results[-1] if results and results[-1].score else None
    if winner is None:
        echo("failed to satisfy the claim")
    else:
        echo("succeeded in satisfying the claim")
    echo("-" * 40)
    for result in results if verbose or winner is None else [winner]:
        for line in tree.lines(result):
            echo(line)
    if winner is not None and verbose:
        for line in tree.amounts(winner):
            echo(line)
    return 0 if winner is not None else 1
