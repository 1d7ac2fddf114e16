"""The differences between stored roles, bindings, flow schemas or priority levels and the defaults.

What an administrator added stays; what is missing is added again. An object whose annotation is
set to `false` stays as it is.

Source: k8s.io/component-helpers `auth/rbac/reconciliation`; k8s.io/apiserver `util/flowcontrol`.
"""

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.api.releases import DEFAULT, MIXED, merged, since
from dralab.api.resource.features import Features, default_of
from dralab.apiserver.access.authorization.covering import missing
from dralab.apiserver.access.authorization.rules import read_rules
from dralab.values.json_types import JsonDict

# Beside this file: importlib.resources takes longer to import than what it reads.
DATA: Final = Path(__file__).with_name("data")
AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
AUTO_UPDATE_SPEC: Final = "apf.kubernetes.io/autoupdate-spec"
LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
DEVICES: Final = "DynamicResourceAllocation"
GROUP: Final = "resource.k8s.io"
FLOW: Final = "flowcontrol.apiserver.k8s.io"
RBAC: Final = "rbac.authorization.k8s.io"
# In the order in which they are made: a binding after its role, a schema after its level.
GROUPS: Final = {
    "clusterroles": RBAC,
    "clusterrolebindings": RBAC,
    "roles": RBAC,
    "rolebindings": RBAC,
    "prioritylevelconfigurations": FLOW,
    "flowschemas": FLOW,
}
# A server cannot do without these: their spec is put right whatever their annotation says.
MANDATORY: Final = frozenset({"exempt", "catch-all"})


def expected(release: str = MIXED, features: Features = frozenset()) -> dict[str, list[JsonDict]]:
    """Return the objects that every cluster of a release has, as they are created, by plural.

    >>> len(expected()["clusterroles"]), len(expected("1.37")["clusterroles"])
    (69, 73)
    """
    roles = _roles_of(release)
    if DEVICES in features - default_of(release):
        _add_devices(roles, _roles_of(since(lambda each: DEVICES in default_of(each))))
    data = {**roles, **orjson.loads((DATA / "flows.json").read_bytes())}
    return {
        plural: [_whole(plural, name, value) for name, value in sorted(data[plural].items())]
        for plural in GROUPS
    }


def _roles_of(release: str) -> dict[str, dict[str, JsonDict]]:
    content = orjson.loads(gzip.decompress((DATA / "roles.json.gz").read_bytes()))
    return merged(release or DEFAULT, content.__getitem__)


def _add_devices(roles: dict[str, dict[str, JsonDict]], later: Mapping[str, Any]) -> None:
    """Add the role rules that the gate adds where it is on."""
    for name, role in later["clusterroles"].items():
        rules = [rule for rule in role.get("rules", ()) if GROUP in rule.get("apiGroups", ())]
        known = roles["clusterroles"].get(name)
        if rules and known is None:
            roles["clusterroles"][name] = role
            roles["clusterrolebindings"][name] = later["clusterrolebindings"][name]
        elif known is not None and rules:
            known["rules"] = [
                *known["rules"],
                *(each for each in rules if each not in known["rules"]),
            ]


def _whole(plural: str, key: str, value: JsonDict) -> JsonDict:
    namespace, _, name = key.rpartition("/")
    metadata: JsonDict = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if GROUPS[plural] == RBAC:
        metadata["labels"] = {**LABELS, **value.get("labels", {})}
        metadata["annotations"] = {AUTO_UPDATE: "true"}
    else:
        metadata["annotations"] = {AUTO_UPDATE_SPEC: "true"}
    parts = ("aggregationRule", "rules", "roleRef", "subjects", "spec")
    found = {"metadata": metadata, **{key: value[key] for key in parts if key in value}}
    return found if "roles" not in plural or "rules" in found else {**found, "rules": None}


def reconciled(plural: str, existing: JsonDict, wanted: JsonDict) -> JsonDict | None:
    """Return what is to be stored instead of an object; None if it may stay as it is."""
    annotations = existing["metadata"].get("annotations") or {}
    if GROUPS[plural] == FLOW:
        return _reconciled_spec(existing, wanted, annotations.get(AUTO_UPDATE_SPEC))
    if annotations.get(AUTO_UPDATE) == "false":
        return None
    metadata = dict(existing["metadata"])
    for part in ("labels", "annotations"):
        metadata[part] = {**wanted["metadata"][part], **(metadata.get(part) or {})}
    found = {**existing, "metadata": metadata}
    if "roleRef" in wanted:
        found["subjects"] = _with_subjects(existing, wanted)
    else:
        _add_rules(found, existing, wanted)
    return found if _differ(found, existing) else None


def is_other_role(existing: JsonDict, wanted: JsonDict) -> bool:
    """Return whether a binding is to another role: that cannot be changed, so it is made again."""
    protected = (existing["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "false"
    return not protected and "roleRef" in wanted and existing.get("roleRef") != wanted["roleRef"]


def _add_rules(found: JsonDict, existing: JsonDict, wanted: JsonDict) -> None:
    same = existing.get("rules") == wanted["rules"]
    lacking = [] if same else missing(read_rules(existing), read_rules(wanted))
    if lacking:
        found["rules"] = [*(existing.get("rules") or ()), *(rule.as_json() for rule in lacking)]
    if "aggregationRule" not in wanted:
        found.pop("aggregationRule", None)
        return
    held = (existing.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    more = [each for each in wanted["aggregationRule"]["clusterRoleSelectors"] if each not in held]
    if more:
        found["aggregationRule"] = {"clusterRoleSelectors": [*held, *more]}


def _with_subjects(existing: JsonDict, wanted: JsonDict) -> list[JsonDict]:
    held = existing.get("subjects") or []
    return [*held, *(each for each in wanted.get("subjects") or () if each not in held)]


def _reconciled_spec(existing: JsonDict, wanted: JsonDict, automatic: Any) -> JsonDict | None:
    metadata = existing["metadata"]
    if metadata["name"] not in MANDATORY:
        # Without the annotation, an object that was never changed belongs to the server.
        automatic = automatic or ("true" if metadata.get("generation") == 1 else "false")
        if automatic != "true":
            return None
    if existing.get("spec") == wanted["spec"]:
        return None
    return {**existing, "spec": wanted["spec"]}


def _differ(one: JsonDict, other: JsonDict) -> bool:
    """Return whether two objects differ in more than that a part is empty."""

    def plain(value: JsonDict) -> JsonDict:
        metadata = {key: part for key, part in value["metadata"].items() if part}
        return {key: part for key, part in value.items() if part} | {"metadata": metadata}

    return plain(one) != plain(other)
