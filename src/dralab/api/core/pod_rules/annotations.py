"""Annotations of a pod that mean something: mirror pods, costs of deletion, AppArmor profiles.

Source: k8s.io/kubernetes `pkg/apis/core/validation` (ValidatePodSpecificAnnotations),
`pkg/registry/core/pod/strategy.go` (applyAppArmorVersionSkew).
"""

import re
from collections.abc import Iterator
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import APPARMOR, DELETION_COST, MIRROR, PodFacts
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonDict, JsonObject

LOCALHOST: Final = "localhost/"
PROFILES: Final = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}
COST: Final = re.compile(r"0|-?[1-9][0-9]{0,9}|-0[0-9]*")
KINDS: Final = ("initContainers", "containers", "ephemeralContainers")
PATH: Final = "metadata.annotations"


def pod_annotation_problems(pod: PodFacts) -> Iterator[FieldError]:
    """Yield the errors of the annotations of a pod."""
    spec, annotations = pod.spec, pod.annotations
    mirrored = annotations.get(MIRROR)
    if mirrored is not None and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        yield fields.invalid_value(f"{PATH}[{MIRROR}]", mirrored, why)
    cost = annotations.get(DELETION_COST)
    if cost is not None and not (COST.fullmatch(cost) and -(2**31) <= int(cost) < 2**31):
        yield fields.invalid_value(f"{PATH}[{DELETION_COST}]", cost, "must be a 32bit integer")
    known = {each.get("name") for kind in KINDS for each in spec.get(kind) or ()}
    for key, profile in annotations.items():
        if not key.startswith(APPARMOR):
            continue
        name = key.removeprefix(APPARMOR)
        if name not in known:
            yield fields.invalid_value(f"{PATH}[{key}]", name, "container not found")
        if profile and profile not in PROFILES and not profile.startswith(LOCALHOST):
            why = f'invalid AppArmor profile name: "{profile}"'
            yield fields.invalid_value(f"{PATH}[{key}]", profile, why)


def annotation_change_problems(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the changes of a pod's annotations that are forbidden; both are metadata."""
    after, before = new.get("annotations") or {}, old.get("annotations") or {}
    for given, other, words in ((before, after, "remove or update"), (after, before, "add")):
        for key, value in given.items():
            if (key in other) if words == "add" else (other.get(key) == value):
                continue
            if key.startswith(APPARMOR):
                why = f"may not {words} AppArmor annotations"
                yield fields.forbidden(f"{PATH}[{key}]", why)
            if key == MIRROR:
                why = f"may not {words} mirror pod annotation"
                yield fields.forbidden(f"{PATH}[{key}]", why)


def take_over_profiles(meta: JsonObject, spec: JsonDict) -> None:
    """Set the AppArmor profiles of containers that have only the older annotation."""
    for container, profile in _profiles(meta, spec):
        if profile is not None:
            container["securityContext"] = {
                **(container.get("securityContext") or {}),
                "appArmorProfile": profile,
            }


def profile_warnings(meta: JsonObject, spec: JsonDict) -> list[str]:
    """Return the warnings about annotations that are taken over, or cannot be."""
    return [
        f"{PATH}[{APPARMOR}{container.get('name')}]: deprecated since v1.30; use the "
        '"appArmorProfile" field instead'
        for container, _ in _profiles(meta, spec)
    ]


def _profiles(meta: JsonObject, spec: JsonDict) -> Iterator[tuple[JsonDict, JsonDict | None]]:
    """Yield the containers that have only the annotation, with its profile; None: it has none."""
    annotations = meta.get("annotations") or {}
    if (spec.get("os") or {}).get("name") == "windows" or not any(
        key.startswith(APPARMOR) for key in annotations
    ):
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for kind in KINDS:
        for container in spec.get(kind) or ():
            text = annotations.get(f"{APPARMOR}{container.get('name')}")
            if text is None or (container.get("securityContext") or {}).get("appArmorProfile"):
                continue
            profile: JsonDict | None = None
            if text in PROFILES:
                profile = {"type": PROFILES[text]}
            elif text.startswith(LOCALHOST) and text != LOCALHOST:
                profile = {"type": "Localhost", "localhostProfile": text.removeprefix(LOCALHOST)}
            if profile is None or profile != of_pod:
                yield container, profile
