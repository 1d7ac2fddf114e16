"""What waits for devices, as the page lists it: one by one, and by cause.

By cause one explanation is made for each kind of pod: those of one namespace that ask for the same,
the last of which is explained, as those before it have their devices by then. Single pods are left
to `explain`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from dralab.explanation.answers import NoResult, answers
from dralab.objects.claims import requests_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import metadata_of, spec_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict, JsonObject

MOST_LISTED: Final = 2_000


def waiting_list(cluster: Snapshot) -> dict[str, Any]:
    """Return the pods and claims that wait, oldest first, the first MOST_LISTED of them.

    `message` is what the cluster's scheduler said last. Those without a time come last.
    """
    found = sorted(
        (_item(each) for each in cluster.pending()),
        key=lambda item: (not item["since"], item["since"]),
    )
    return {"total": len(found), "items": found[:MOST_LISTED]}


def named(pending: Sequence[Pending], kind: str, namespace: str, name: str) -> list[Pending]:
    """Return what waits under a name, or nothing."""
    return [
        each
        for each in pending
        if (each.kind, each.namespace, each.name) == (kind, namespace, name)
    ]


def _item(each: Pending) -> dict[str, Any]:
    owner: Any = each.pod if each.kind == "pod" else each.claims[0]
    return {
        "kind": each.kind,
        "namespace": each.namespace,
        "name": each.name,
        "since": str(metadata_of(owner).get("creationTimestamp") or ""),
        "priority": int(spec_of(owner).get("priority") or 0),
        "claims": [
            {"name": claim["metadata"]["name"], "requests": _requests(claim)}
            for claim in each.claims
        ],
        "allocated": [claim["metadata"]["name"] for claim in each.allocated],
        "missing": str(each.missing or ""),
        "message": _message(owner) if each.kind == "pod" else "",
    }


def _requests(claim: JsonDict) -> list[str]:
    return [str(request.get("name")) for request in requests_of(spec_of(claim))]


def _message(pod: JsonObject) -> str:
    told = condition_of(pod, "PodScheduled") or {}
    if told.get("status") != "False":
        return ""
    return str(told.get("message") or told.get("reason") or "")


# --- by cause


MOST_KINDS: Final = 200
MOST_NAMED: Final = 2_000
# What differs between pods that ask for the same.
OF_ONE_POD: Final = frozenset({"hostname", "nodeName", "resourceClaims", "volumes"})


def causes(cluster: Snapshot, is_over: Callable[[], bool]) -> dict[str, Any]:
    """Return the causes for which pods and claims wait, those of the most pods first.

    `pods` names those that wait for a cause, `namespaces` says how many are whose, `since` when
    the oldest of them came, `help` what helps one of them. `unexplained` counts those whose kind
    came after MOST_KINDS others, or after `is_over`. The devices of `cluster` are given away.
    """
    kinds: dict[bytes, list[Pending]] = defaultdict(list)
    for each in cluster.pending():
        kinds[_kind(each)].append(each)
    groups = sorted(kinds.values(), key=len, reverse=True)
    last = {group[-1].title: group for group in groups[:MOST_KINDS]}
    walk = cluster.pending(every=True)
    asked = [each for each in walk if each.title in last]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    told = answers(cluster, walk, asked)
    for each in asked:
        if is_over():
            break
        try:
            answer = next(told)
        except NoResult:
            break
        _add(found, answer, last.pop(each.title))
    ranked = sorted(found.values(), key=lambda cause: (-cause["count"], cause["headline"]))
    left = sum(map(len, groups)) - sum(cause["count"] for cause in ranked)
    return {"causes": ranked, "unexplained": left}


def _kind(each: Pending) -> bytes:
    spec = {name: value for name, value in spec_of(each.pod).items() if name not in OF_ONE_POD}
    claims = [spec_of(claim) for claim in each.claims]
    about = [each.kind, each.namespace, spec, claims, bool(each.allocated), str(each.missing)]
    return orjson.dumps(about, option=orjson.OPT_SORT_KEYS)


def _add(
    found: dict[tuple[str, str], dict[str, Any]], answer: dict[str, Any], group: Sequence[Pending]
) -> None:
    code = answer.get("code", "")
    headline = "fits, and waits for its scheduler" if answer["fits"] else answer["headline"]
    new = {"code": code, "headline": headline, "count": 0, "namespaces": {}, "since": ""}
    cause = found.setdefault((code, headline), new | {"help": None, "pods": []})
    cause["count"] += len(group)
    owners: list[Any] = [each.pod if each.kind == "pod" else each.claims[0] for each in group]
    times = [str(metadata_of(owner).get("creationTimestamp") or "") for owner in owners]
    cause["since"] = min(filter(None, (cause["since"], *times)), default="")
    for each in group:
        spaces = cause["namespaces"]
        spaces[each.namespace] = spaces.get(each.namespace, 0) + 1
        if len(cause["pods"]) < MOST_NAMED:
            name = {"kind": each.kind, "namespace": each.namespace, "name": each.name}
            cause["pods"].append(name)
    helps = answer.get("helps") or ()
    best = next((each for each in helps if each["fitsNow"]), next(iter(helps), None))
    if best is not None and not (cause["help"] and cause["help"]["fitsNow"]):
        about = group[-1]
        of = {"kind": about.kind, "namespace": about.namespace, "name": about.name}
        cause["help"] = {**best, "of": of}
