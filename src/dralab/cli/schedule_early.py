"""`dralab schedule --nodes FILE --claim FILE`: the file format of k8srm's first stages."""

from pathlib import Path
from typing import Any

import click

from dralab.api.yaml_documents import YamlError, single
from dralab.cli._terminal import echo
from dralab.files.reading import read
from dralab.prototypes.k8srm.early import model, scheduling, tree
from dralab.prototypes.k8srm.early.capacities import CapacityError
from dralab.prototypes.k8srm.expressions import K8srmExpressions
from dralab.prototypes.k8srm.reading import attributes


def schedule_early(nodes: Path, claim: Path, *, verbose: bool) -> int:
    """Print whether a pod fits, and the tree of the chosen node (verbose: of every node).

    Returns 0 if it fits, 1 if it does not.
    """
    try:
        read_nodes = model.read_nodes(_loaded(nodes, list))
        pod = model.read_pod(_loaded(claim, dict))
    except (KeyError, TypeError, AttributeError) as error:
        raise click.UsageError(
            f"{nodes} or {claim}: not in the format of the first stages: {error}"
        ) from None
    except CapacityError as error:
        raise click.UsageError(str(error)) from None
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


def _loaded(path: Path, wanted: type) -> Any:
    try:
        value = single(read(path))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except YamlError as error:
        place = f"{path}:{error.line}" if error.line else path
        raise click.UsageError(f"{place}: {error.message}") from None
    if not isinstance(value, wanted):
        raise click.UsageError(f"{path}: expected a YAML {wanted.__name__}")
    return value
