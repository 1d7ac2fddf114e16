"""Answers about capacity as JSON values: what `-o json` prints and the page reads."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.capacity.defragment import Defragmentation
from dralab.capacity.fragmentation import KindFragmentation, stranded_share
from dralab.capacity.planning import NodePlan
from dralab.capacity.relocation import Move, devices_of
from dralab.capacity.what_if import WhatIf
from dralab.scheduling.state import PodPlacement

MOST_NODES: Final = 50
"""Nodes that an answer names for each kind of pods; it counts all."""


def structured_what_if(result: WhatIf) -> dict[str, Any]:
    """Return what a change makes different, as JSON values."""
    return {
        "nodes": {
            "before": result.nodes[0],
            "after": result.nodes[1],
            "added": list(result.added),
            "removed": list(result.removed),
        },
        "unaffected": result.unaffected,
        "pods": [
            {
                "namespace": each.pod.namespace,
                "name": each.pod.name,
                "fate": each.fate,
                "before": each.before or None,
                "after": each.after or None,
                "interrupted": each.interrupted,
                "why": each.why or None,
                "code": each.code or None,
                "devices": list(each.devices),
            }
            for each in result.outcomes
        ],
        "fragmentation": {
            "before": _measured(result.before),
            "after": _measured(result.after),
        },
    }


def _measured(found: Sequence[KindFragmentation]) -> dict[str, Any]:
    return {
        "stranded": stranded_share(found),
        "kinds": [
            {
                "like": str(each.kind.pod.key),
                "asks": each.kind.asks,
                "pods": each.kind.pods,
                "free": each.free,
                "stranded": each.stranded,
                "nodes": len(each.nodes),
                "fitsOn": list(each.nodes[:MOST_NODES]),
            }
            for each in found
        ],
    }


def structured_moves(found: Defragmentation) -> dict[str, Any]:
    """Return moves and what they serve, as JSON values."""
    return {
        "served": found.served,
        "moves": found.moves,
        "atBest": found.at_best,
        "fitting": [_placed(each) for each in found.fitting],
        "clearings": [
            {
                **_placed(each.placement),
                "moves": [_move(move) for move in each.moves],
                "cost": each.cost,
                "bound": each.bound,
                "proved": each.is_proved,
            }
            for each in found.clearings
            if each.placement is not None
        ],
        "waiting": [
            {"pod": str(each.pod.key), "why": each.why, "proved": each.is_proved}
            for each in found.unserved
        ],
    }


def _placed(placement: PodPlacement) -> dict[str, Any]:
    return {
        "pod": str(placement.pod.key),
        "node": placement.node,
        "devices": devices_of(placement),
    }


def _move(move: Move) -> dict[str, Any]:
    return {
        "pod": str(move.pod.key),
        "from": move.origin.node,
        "to": move.placement.node,
        "releases": devices_of(move.origin),
        "devices": devices_of(move.placement),
        "makesRoomFor": str(move.makes_room_for),
        "cost": move.cost,
    }


def structured_plan(planned: NodePlan) -> dict[str, Any]:
    """Return the nodes to add and what becomes of the pods, as JSON values."""
    return {
        "nodes": dict(planned.nodes),
        "price": planned.price,
        "least": planned.least,
        "fitting": [str(pod.key) for pod in planned.fitting],
        "served": [str(pod.key) for pod in planned.served],
        "waiting": [
            {"pod": str(pod.key), "why": why, "code": planned.codes.get(pod.uid)}
            for pod, why in planned.unserved.values()
        ],
    }
