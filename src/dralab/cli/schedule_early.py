"""`dralab schedule --nodes FILE --claim FILE`: the file format of k8srm's first stages."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from dralab.api.yaml_documents import YamlError, only_document
from dralab.cli._terminal import echo
from dralab.cli.generations import nearest_line
from dralab.files.reading import read
from dralab.prototypes.findings import Finding
from dralab.prototypes.k8srm.early import checking, model, scheduling, tree
from dralab.prototypes.k8srm.expressions import K8srmExpressions
from dralab.prototypes.k8srm.reading import attributes


def schedule_early(nodes: Path, claim: Path, *, verbose: bool) -> int:
    """Print whether a pod fits, and the tree of the chosen node (verbose: of every node).

    Returns 0 if it fits, 1 if it does not.
    """
    read_nodes = model.read_nodes(_loaded(nodes, checking.nodes_problems))
    pod = model.read_pod(_loaded(claim, checking.pod_problems))
    expressions = K8srmExpressions()

    def meets(text: str, values: Any) -> bool:
        items = [{"name": name, **value} for name, value in values.items()]
        return expressions.get(text).value(attributes(items))

    results = scheduling.schedule(read_nodes, pod, meets)
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


def _loaded(path: Path, problems: Callable[[Any], Sequence[Finding]]) -> Any:
    try:
        document = only_document(read(path), positions=True)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except YamlError as error:
        place = f"{path}:{error.line}" if error.line else path
        raise click.UsageError(f"{place}: {error.message}") from None
    found = problems(document.value)
    for finding in found:
        line = nearest_line(document.positions, finding.field) or document.line
        echo(f"Error: {path}:{line}: {finding}", err=True)
    if found:
        sys.exit(2)
    return document.value
