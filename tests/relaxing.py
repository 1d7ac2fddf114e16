"""Objects without some conditions: the test's own way, on v1 mappings, to judge explanations."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dralab.explanation.causes import Help
from dralab.explanation.conditions import Condition
from dralab.explanation.edits import patch_of
from dralab.values.json_patches import json_patch
from problems import Case


def relaxed(case: Case, dropped: Iterable[Condition]) -> Case:
    """Return the case without conditions, as a person would edit the objects."""
    made = copy.deepcopy(case)
    gone = list(dropped)
    # Later positions first: deleting one moves those behind it.
    for condition in sorted(gone, key=lambda item: -item.number):
        _drop(made, condition)
    for claim in made.claims:
        devices = claim["spec"]["devices"]
        there = {item["name"] for item in devices.get("requests", ())}
        devices["constraints"] = [
            rule
            for rule in devices.get("constraints", ())
            if not rule.get("requests") or {name.split("/")[0] for name in rule["requests"]} & there
        ]
    return made


def helped(case: Case, found: Help) -> Iterator[Case]:
    """Yield the case after a help; several where each of those who hold devices is enough."""
    if found.kind in {"wait", "add"}:
        # A node like this one is this one without anything in use.
        gone = [[name] for name in found.who] if found.note == "any" else [list(found.who)]
        for names in gone:
            others = [each for each in case.others if not _names(each) & set(names)]
            yield replace(case, others=others if found.kind == "wait" else [])
        return
    if found.kind == "several":
        cases = [case]
        for part in found.parts:
            cases = [made for each in cases for made in helped(each, part)]
        yield from cases
        return
    made = copy.deepcopy(case)
    assert found.mark is not None
    kind, name = found.mark.owner
    objects = made.claims if kind == "claim" else made.classes
    at = next(n for n, each in enumerate(objects) if name in _names(each))
    objects[at] = json_patch(objects[at], patch_of(found))
    yield made


def _drop(case: Case, condition: Condition) -> None:
    if condition.kind == "held":
        for other in case.others:
            devices = other["status"]["allocation"]["devices"]
            devices["results"] = [
                item
                for item in devices["results"]
                if (item["driver"], item["pool"], item["device"]) not in condition.devices
            ]
        return
    if condition.kind == "class-selector":
        for item in case.classes:
            if item["metadata"]["name"] == condition.request:
                del item["spec"]["selectors"][condition.number]
        return
    devices = next(
        item["spec"]["devices"]
        for item in case.claims
        if condition.claim in (item["metadata"]["name"], _full(item))
    )
    if condition.kind == "constraint":
        del devices["constraints"][condition.number]
    elif condition.kind == "request":
        devices["requests"] = [
            item for item in devices["requests"] if item["name"] != condition.request
        ]
    else:
        _ease(_asked(devices, condition.request), condition)


def _names(item) -> set[str]:
    return {item["metadata"]["name"], _full(item)}


def _full(item) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def _asked(devices, name: str):
    request, _, alternative = name.partition("/")
    for item in devices["requests"]:
        if item["name"] == request:
            if not alternative:
                return item["exactly"]
            return next(sub for sub in item["firstAvailable"] if sub["name"] == alternative)
    return {}


def _ease(asked, condition: Condition) -> None:
    if not asked:
        return  # the request itself was dropped
    if condition.kind == "selector":
        del asked["selectors"][condition.number]
    elif condition.kind == "count":
        asked["count"] = 1
    elif condition.kind == "capacity":
        del asked["capacity"]["requests"][condition.text]
    elif condition.kind == "taint":
        taint = condition.taint
        more = {"key": taint.key, "value": taint.value, "effect": taint.effect}
        asked["tolerations"] = [*asked.get("tolerations", ()), more]
