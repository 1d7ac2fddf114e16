"""Namespaces, nodes, leases, events and priorities."""

import re
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.addresses import is_network, network_problems
from dralab.api.core.statuses import phase_errors
from dralab.api.fields import FieldError
from dralab.api.metadata import finalizer_errors
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

NAME_LABEL: Final = "kubernetes.io/metadata.name"
SYSTEM_PREFIX: Final = "system-"
HIGHEST_PRIORITY: Final = 1_000_000_000
SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000,
}  # fmt: skip
COORDINATED: Final = ("strategy", "preferredHolder")
DECLARED: Final = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*", re.ASCII)


RULES: Final = RuleTables(globals())


class NamespaceStrategy(Strategy):
    """Namespaces end in steps: their finalizers are a part of the spec."""

    def default(self, value: JsonDict) -> None:
        """Add the name as a label; the phase is Active by default."""
        if (status := value.get("status")) is not None and not status.get("phase"):
            status["phase"] = "Active"
        if value["metadata"].get("name"):
            self._label(value)

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin active, with the finalizer of the namespace controller and the name as label."""
        spec = value.setdefault("spec", {})
        finalizers = spec.setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        value["status"] = {"phase": "Active"}
        self._label(value)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Keep the finalizers: they go through their own path."""
        new["spec"] = dict(old.get("spec") or {})
        self._label(new)

    def _label(self, value: JsonDict) -> None:
        meta = value["metadata"]
        meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: meta.get("name", "")}

    def marked(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Show that the namespace is going."""
        value["status"] = {**(value.get("status") or {}), "phase": "Terminating"}

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name."""
        return names.label_problems(name)

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the finalizers."""
        finalizers, path = (value.get("spec") or {}).get("finalizers") or (), "spec.finalizers"
        return [error for name in finalizers for error in finalizer_errors(name, path)]

    def validate_part(self, subresource: str, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return the errors of changed finalizers."""
        finalizers = (new.get("spec") or {}).get("finalizers") or ()
        return [
            error
            for index, name in enumerate(finalizers)
            for error in finalizer_errors(name, f"spec.finalizers[{index}]")
        ]

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return the errors of the phase."""
        return phase_errors(new)


class NodeStrategy(Strategy):
    """Nodes: their status may be set at creation."""

    keeps_status = True
    rules = RULES["ValidateNode"]

    def default(self, value: JsonDict) -> None:
        """Allocatable defaults to the capacity; `podCIDR` is the first of `podCIDRs`."""
        status, spec = value.get("status") or {}, value.get("spec") or {}
        first, every = spec.get("podCIDR") or "", spec.get("podCIDRs") or ()
        if first and every[:1] != [first]:
            spec["podCIDRs"] = [first]
        elif every and not first:
            spec["podCIDR"] = every[0]
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop the source of a kubelet's configuration, a feature that was removed."""
        (value.get("spec") or {}).pop("configSource", None)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """Drop the same, unless it was there before."""
        if not (old.get("spec") or {}).get("configSource"):
            self.prepare_create(new, now)

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002
        """Return what is deprecated in the node."""
        spec = value.get("spec") or {}
        found = []
        if spec.get("configSource"):
            found.append("spec.configSource: the feature is removed")
        if spec.get("externalID"):
            found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return found

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return the errors of the features and the addresses that a node declares."""
        return _declared_errors(new.get("status") or {})

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: some facts are said once."""
        before, after = old.get("spec") or {}, new.get("spec") or {}
        errors = self.validate(new) + _taints(after, "spec")  # upstream judges taints twice
        if (before.get("externalID") or "") != (after.get("externalID") or ""):
            errors.append(fields.forbidden("spec.externalID", "may not be updated"))
        if before.get("providerID") and before["providerID"] != after.get("providerID"):
            why = 'node updates may not change providerID except from "" to valid'
            errors.append(fields.forbidden("spec.providerID", why))
        if before.get("podCIDRs") and before["podCIDRs"] != after.get("podCIDRs"):
            why = 'node updates may not change podCIDR except from "" to valid'
            errors.append(fields.forbidden("spec.podCIDRs", why))
        return errors


def _taint_value(value: str, path: str) -> list[FieldError]:
    problems = names.label_value_problems(value)
    return [fields.invalid_value(path, value, ";".join(problems))] if problems else []


def _taints(spec: JsonObject, path: str) -> list[FieldError]:  # noqa: ARG001
    errors: list[FieldError] = []
    seen = set()
    for index, taint in enumerate(spec.get("taints") or ()):
        at = f"metadata.taints[{index}]"  # as upstream has it
        errors += RULES["validateTaint"](taint, at)
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        if (key, effect) in seen:
            # By the names that the fields have in Go.
            shown = {
                "Key": key, "Value": taint.get("value") or "", "Effect": effect,
                "TimeAdded": taint.get("timeAdded"),
            }  # fmt: skip
            why = "taints must be unique by key and effect pair"
            errors.append(FieldError("FieldValueDuplicate", at, shown, why))
        seen.add((key, effect))
    return errors


def _declared_errors(status: JsonObject) -> list[FieldError]:
    """Return the errors of the features that a node declares: names in order, each once."""
    features, path = status.get("declaredFeatures") or (), "status.declaredFeatures"
    errors = []
    for index, name in enumerate(features):
        if not DECLARED.fullmatch(name):
            why = (
                f'invalid feature name "{name}": must start with an UpperCamelCase segment, with '
                "subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), "
                "and contain only alphanumeric characters and slashes"
            )
            errors.append(fields.invalid_value(f"{path}[{index}]", name, why))
        after, at = features[index + 1 : index + 2], f"{path}[{index + 1}]"
        if after == [name]:
            errors.append(fields.duplicate(at, name))
        elif after and name > after[0]:
            errors.append(fields.invalid_value(at, after[0], "list must be sorted alphabetically"))
    return errors


def _ranges(spec: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of the ranges of the addresses of a node's pods."""
    ranges, path = spec.get("podCIDRs") or (), f"{path}.podCIDRs"
    errors = [
        fields.invalid_value(f"{path}[{index}]", text, why)
        for index, text in enumerate(ranges)
        for why in network_problems(text)
    ]
    if len(ranges) < 2:
        return errors
    for index, text in enumerate(ranges):
        if is_network(text):
            continue
        why = (
            "invalid PodCIDRs. failed to check with dual stack with error:"
            f"invalid CIDR[{index}]: <nil> (invalid CIDR address: {text})"
        )
        errors.append(FieldError("InternalError", path, "", why))
        break
    if errors or len({":" in text for text in ranges}) < len(ranges):
        why = "may specify no more than one CIDR for each IP family"
        errors.append(fields.invalid_value(path, list(ranges), why))
    return errors


class LeaseStrategy(Strategy):
    """Leases: a PUT creates a missing one, and needs the version of an existing one."""

    unconditional = False
    creates_on_update = True
    rules = RULES["ValidateLease"]

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop what coordinated leader election needs, which is off by default."""
        for part in COORDINATED:
            (value.get("spec") or {}).pop(part, None)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop the same."""
        self.prepare_create(new, now)


def event_to_core(value: JsonDict) -> JsonDict:
    """Return an events.k8s.io event in its core form."""
    found: JsonDict = {"kind": "Event", "apiVersion": "v1", "metadata": value["metadata"]}
    for theirs, ours in CORE_NAMES.items():
        if theirs in value:
            found[ours] = value[theirs]
    if series := value.get("series"):
        found["series"] = dict(series)
    for ours, zero in CORE_ALWAYS.items():
        if ours not in found:
            found[ours] = {} if isinstance(zero, dict) else zero
    return found


def event_from_core(value: JsonDict) -> JsonDict:
    """Return a core event in the form of events.k8s.io."""
    found: JsonDict = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": value["metadata"],
    }
    for theirs, ours in CORE_NAMES.items():
        if ours not in value:
            continue
        item = value[ours]
        always = theirs in EVENTS_ALWAYS
        if item or always:
            found[theirs] = item
    if series := value.get("series"):
        found["series"] = dict(series)
    return found


# Name in events.k8s.io → name in the core group.
CORE_NAMES: Final = {
    "regarding": "involvedObject",
    "related": "related",
    "reason": "reason",
    "note": "message",
    "type": "type",
    "action": "action",
    "eventTime": "eventTime",
    "reportingController": "reportingComponent",
    "reportingInstance": "reportingInstance",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
CORE_ALWAYS: Final[dict[str, Any]] = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
EVENTS_ALWAYS: Final = frozenset(
    {
        "eventTime", "regarding", "deprecatedSource", "deprecatedFirstTimestamp",
        "deprecatedLastTimestamp",
    }
)  # fmt: skip


class PriorityClassStrategy(Strategy):
    """Priority classes: values stay."""

    counts = False
    rules = RULES["ValidatePriorityClass"]
    change_rules = RULES["ValidatePriorityClassUpdate"]

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        value.setdefault("value", 0)
        value.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _reserved_or_low(value: JsonObject, path: str) -> list[FieldError]:  # noqa: ARG001
    name, number = value["metadata"].get("name", ""), value.get("value", 0)
    if not name.startswith(SYSTEM_PREFIX):
        if number <= HIGHEST_PRIORITY:
            return []
        why = f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"
        return [fields.forbidden("value", why)]
    error = _system_error(name, number, default=bool(value.get("globalDefault")))
    if not error:
        return []
    why = "priority class names with 'system-' prefix are reserved for system use only"
    return [fields.forbidden("metadata.name", f"{why}. error: {error}")]


def _same_value(new: JsonObject, path: str, old: JsonObject) -> list[FieldError]:  # noqa: ARG001
    if new.get("value") == old.get("value"):
        return []
    return [fields.forbidden("value", "may not be changed in an update.")]


def _system_error(name: str, number: int, *, default: bool) -> str:
    """Return the errors of a class with a system name; empty if it is that system class."""
    if name not in SYSTEM_CLASSES:
        return f"{name} is not a known system priority class"
    if number != SYSTEM_CLASSES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if default else ""
