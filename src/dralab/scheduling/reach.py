"""The nodes from which the devices of allocated claims can be used."""

import numpy as np

from dralab.scheduling.demands import PodDemand
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.values import labels
from dralab.values.json_types import JsonObject


def reached(demand: PodDemand, table: NodeTable) -> Mask | None:
    """Return the nodes that reach the devices of a pod's allocated claims; None if all do."""
    found: Mask | None = None
    for item in demand.claims:
        selector = (item.allocation or {}).get("nodeSelector")
        if selector is not None:
            mask = _selected(selector, table)
            found = mask if found is None else found & mask
    return found


def _selected(selector: JsonObject, table: NodeTable) -> Mask:
    found = np.zeros(table.size, dtype=bool)
    terms = selector.get("nodeSelectorTerms") or ()
    for term in terms:
        for name in labels.nodes_named_by(term) or ():
            row = table.row_of.get(name)
            if row is not None:
                found[row] = True
    if not all(map(_names_only, terms)):
        for name, row in table.row_of.items():
            found[row] = labels.node_selector_accepts(selector, table.labels[row], name)
    return found


def _names_only(term: JsonObject) -> bool:
    return (
        not term.get("matchExpressions")
        and len(term.get("matchFields") or ()) == 1
        and term["matchFields"][0].get("operator") == "In"
    )
