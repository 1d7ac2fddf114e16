"""NodePools of Karpenter in a file of manifests: what they allow, and the nodes that they ask for.

The `pools` of the scenario are the instance types. A NodePool asks for nodes of all that meet its
requirements, with its labels and taints.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dralab.api.yaml_documents import YamlError, documents
from dralab.capacity.autoscaling.node_pools import (
    CONSOLIDATIONS,
    NEVER,
    REASONS,
    DisruptionBudget,
    NodePoolRules,
)
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.requests import base_units
from dralab.objects.taints import taints_of
from dralab.scenarios.errors import InputError, content_of
from dralab.scenarios.fields import Fields, FieldSource
from dralab.scenarios.tables import (
    Given,
    InputField,
    Table,
    choice,
    duration,
    field,
    label,
    labels,
    not_one_of,
    row,
    rows,
    texts,
    whole,
)
from dralab.simulation.scenario.fleet import EFFECTS, ScenarioFleet, taint_of, taint_text
from dralab.values import cron
from dralab.values.json_types import JsonDict
from dralab.values.labels import Requirement
from dralab.values.quantity import QuantityError, parse_any

VERSION: Final = "karpenter.sh/v1"
POOL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
USUAL: Final = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
# A NodePool lets its nodes live so long where it says nothing: 720h.
USUAL_LIFE: Final = 720 * 3600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePoolTemplate:
    """A NodePool: what it allows, and what its nodes are like."""

    rules: NodePoolRules
    labels: Mapping[str, str]
    requirements: tuple[Requirement, ...]
    taints: tuple[JsonDict, ...]
    startup_taints: tuple[JsonDict, ...]

    def fleet(self, of: ScenarioFleet, name: str, *, spot: bool) -> ScenarioFleet | None:
        """Return nodes of an instance type as those of the NodePool; None: they do not meet it."""
        (node,) = of.nodes
        own = dict(each.split("=", 1) for each in node.labels)
        known = {
            **USUAL, INSTANCE_TYPE: name, CAPACITY_TYPE: "spot" if spot else "on-demand", **own,
            **self.labels, POOL: self.rules.name,
        }  # fmt: skip
        for each in self.requirements:
            # A label that instance types do not have becomes the node's: the first value will do.
            if each.key not in known and each.operator == "In":
                known[each.key] = each.values[0]
            if not each.accepts(known):
                return None
        texts = map(taint_text, self.taints)
        made = replace(
            node,
            labels=frozenset(f"{key}={value}" for key, value in known.items()),
            taints=tuple({_identity(text): text for text in (*node.taints, *texts)}.values()),
        )
        objects = [
            _with(item, known, self.taints) if item["kind"] == "Node" else item
            for item in of.objects
        ]
        return replace(of, nodes=(made,), objects=tuple(objects))


def _identity(taint: str) -> tuple[str, str]:
    """Return key and effect: a node has one taint of them."""
    made = taint_of(taint)
    return made["key"], made["effect"]


def _with(node: JsonDict, labels: Mapping[str, str], taints: Sequence[JsonDict]) -> JsonDict:
    metadata = {**node["metadata"], "labels": {**labels_of(node), **labels}}
    given = {(each["key"], each["effect"]): each for each in (*taints_of(node), *taints)}
    spec = {**spec_of(node), "taints": list(given.values())}
    return {**node, "metadata": metadata, "spec": spec}


# --- the object -----------------------------------------------------------------------------------


def _or_never(usual: int) -> InputField:
    def read(given: Fields, key: str) -> int | None:
        return None if given.raw(key) == NEVER else given.duration(key)

    return field({}, read, default=usual)


def _schedule(text: str) -> str:
    try:
        cron.parse(text)
    except cron.ScheduleError as error:
        return f"{text!r} is not a schedule: {error}"
    return ""


def _limits(given: Fields, key: str) -> dict[str, int]:
    inner, found = given.mapping(key), {}
    for name, amount in inner.value.items():
        try:
            parse_any(amount)
        except QuantityError:
            raise inner.error(name, f"{amount!r} is not a quantity: write 100 or 16Gi") from None
        found[name] = base_units(name, str(amount))
    return found


def _nodes(text: str) -> str:
    part = text.removesuffix("%")
    if part.isdecimal() and (part == text or int(part) <= 100):
        return ""
    return f"{text!r} is not a number of nodes, or a part: 10%"


ANY: Final = field({}, default=None)
TAINT: Final = Table(
    {
        "key": label(required=True),
        "value": label(default=""),
        "effect": choice(EFFECTS, required=True),
    }
)
REQUIREMENT: Final = Table(
    {
        "key": label(required=True),
        "operator": choice(OPERATORS, required=True),
        "values": texts(),
        "minValues": whole(default=None),
    }
)
TEMPLATE: Final = Table(
    {
        "requirements": rows(REQUIREMENT),
        "taints": rows(TAINT),
        "startupTaints": rows(TAINT),
        "expireAfter": _or_never(USUAL_LIFE),
        "nodeClassRef": ANY,
        "terminationGracePeriod": ANY,
    }
)
BUDGET: Final = Table(
    {
        "nodes": label(default="10%").checked(_nodes),
        "reasons": texts(check=not_one_of(REASONS)),
        "schedule": label(default="").checked(lambda text: _schedule(text) if text else ""),
        "duration": duration(default=0),
    }
)
DISRUPTION: Final = Table(
    {
        "consolidationPolicy": choice(CONSOLIDATIONS[:2], default=CONSOLIDATIONS[0]),
        "consolidateAfter": _or_never(0),
        "budgets": rows(BUDGET, always=False, default=None),
    }
)
METADATA: Final = Table({"labels": labels(), "annotations": ANY})
SPEC: Final = Table(
    {
        "template": row(Table({"metadata": row(METADATA), "spec": row(TEMPLATE)}), required=True),
        "disruption": row(DISRUPTION),
        "limits": field({}, _limits, default={}),
        "weight": whole(default=0),
        "replicas": ANY,
    }
)


def read(path: Path) -> tuple[tuple[NodePoolTemplate, ...], tuple[str, ...]]:
    """Return the NodePools of a file, and what of it is not acted on. InputError."""
    found: dict[str, NodePoolTemplate] = {}
    notes: list[str] = []
    for body, source in _objects(path):
        if (body.get("apiVersion"), body.get("kind")) != (VERSION, "NodePool"):
            kind = body.get("kind")
            notes.append(f"{path.name}: {kind} is not acted on, only NodePools of {VERSION}")
            continue
        name = str((body.get("metadata") or {}).get("name") or "")
        if not name or name in found:
            problem = f"{name!r} is given twice" if name else "must be given"
            raise source.error("metadata.name", problem)
        found[name], ignored = template_of(name, body, source)
        notes += (f"NodePool {name}: {each} is not acted on" for each in ignored)
    if not found:
        raise InputError(path, f"has no NodePool of {VERSION}")
    return tuple(found.values()), tuple(notes)


def template_of(
    name: str, body: JsonDict, source: FieldSource
) -> tuple[NodePoolTemplate, Sequence[str]]:
    """Return a NodePool, and which of its fields are not acted on. InputError."""
    given = SPEC.read(Fields(source, "spec", body.get("spec")))
    return _template(name, given), _ignored(given)


def _objects(path: Path) -> Iterator[tuple[JsonDict, FieldSource]]:
    try:
        raw = content_of(path)
        parsed = [each for each in documents(raw, positions=True) if each.value is not None]
    except YamlError as error:
        raise InputError(path, error.message, line=error.line or None) from None
    for each in parsed:
        if not isinstance(each.value, dict):
            raise InputError(path, "must hold objects")
        listed = each.value.get("items") if each.value.get("kind") == "List" else None
        for body in [each.value] if listed is None else listed:
            yield body, FieldSource(path, each.positions if listed is None else {})


def _template(name: str, given: Given) -> NodePoolTemplate:
    template, disruption = given.template.spec, given.disruption
    never = disruption.consolidateAfter is None
    budgets = tuple(_budget(each) for each in disruption.budgets or ())
    rules = NodePoolRules(
        name=name,
        weight=given.weight,
        limits=given.limits,
        expire_after=template.expireAfter,
        consolidation=NEVER if never else disruption.consolidationPolicy,
        consolidate_after=disruption.consolidateAfter or 0,
        budgets=(DisruptionBudget(),) if disruption.budgets is None else budgets,
    )
    return NodePoolTemplate(
        rules=rules,
        labels=dict(each.split("=", 1) for each in sorted(given.template.metadata.labels)),
        requirements=tuple(_requirement(each) for each in template.requirements),
        taints=tuple(_taint(each) for each in template.taints),
        startup_taints=tuple(_taint(each) for each in template.startupTaints),
    )


def _budget(given: Given) -> DisruptionBudget:
    if bool(given.schedule) != bool(given.duration):
        raise given.error("schedule", "must be set with duration")
    return DisruptionBudget(**given.values)


def _taint(given: Given) -> JsonDict:
    found = {"key": given.key, "effect": given.effect}
    return {**found, "value": given.value} if given.value else found


def _requirement(given: Given) -> Requirement:
    operator, values = given.operator, tuple(given["values"])
    counts = {"In": len(values) > 0, "Exists": not values, "DoesNotExist": not values}
    if operator in {"Gt", "Lt", "Gte", "Lte"}:
        if len(values) != 1 or not values[0].isdecimal():
            raise given.error("values", f"{operator} needs one whole number and has {list(values)}")
        if operator.endswith("te"):
            # At least 4 is more than 3.
            step = -1 if operator == "Gte" else 1
            return Requirement(given.key, operator[:2], (str(int(values[0]) + step),))
    elif not counts.get(operator, True):
        raise given.error("values", "must be given" if operator == "In" else f"{operator} has none")
    return Requirement(given.key, operator, values)


def _ignored(given: Given) -> Sequence[str]:
    template = given.template.spec
    there = {
        "spec.replicas": given.replicas,
        "spec.template.spec.terminationGracePeriod": template.terminationGracePeriod,
        "spec.template.metadata.annotations": given.template.metadata.annotations,
        "minValues of spec.template.spec.requirements": [
            each for each in template.requirements if each.minValues is not None
        ],
    }
    return [name for name, value in there.items() if value]
