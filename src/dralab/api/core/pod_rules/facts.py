"""What the rules of a pod may look at. They get nothing else, and their verdict is kept under it.

So a rule cannot depend on a part of a pod that is not in the key of the cache (`known`): one that
reads another annotation, or a label, first has to make it a fact here.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass
from dralab.values.remembering import json_key

MIRROR: Final = "kubernetes.io/config.mirror"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
OLD_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
    "security.alpha.kubernetes.io/unsafe-sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
}
READ: Final = frozenset({MIRROR, DELETION_COST, SECCOMP_POD, *OLD_ANNOTATIONS})
READ_PREFIXES: Final = (APPARMOR, SECCOMP_CONTAINER)
# The volume that a server adds to each pod has a name by chance: for rules, one is like another.
BY_CHANCE: Final = re.compile(rb"kube-api-access-[a-z0-9]{5}(?=\")")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The parts of a pod, or of a template, that its rules read.

    `name` is that of a pod whose claims are named after it, else empty; `annotations` are those
    that mean something here.
    """

    spec: JsonObject
    annotations: Mapping[str, str]
    name: str

    @classmethod
    def of(cls, spec: JsonObject, meta: JsonObject) -> "PodFacts":
        """Return the facts of a pod with that metadata.

        >>> PodFacts.of({}, {"name": "p", "labels": {"a": "b"}, "annotations": {"c": "d"}})
        PodFacts(spec={}, annotations={}, name='')
        """
        annotations = meta.get("annotations") or {}
        if annotations:
            annotations = {
                key: value
                for key, value in annotations.items()
                if key in READ or key.startswith(READ_PREFIXES)
            }
        named = any(volume.get("ephemeral") is not None for volume in spec.get("volumes") or ())
        return cls(spec, annotations, (meta.get("name") or "") if named else "")

    def key(self) -> bytes | None:
        """Return what differs wherever a fact does; None where it would be long."""
        text = json_key(self)  # every field, also one that is added
        if text is None:
            return None
        names = set(BY_CHANCE.findall(text))
        return BY_CHANCE.sub(b"*", text) + b"%d" % len(names) if names else text


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What rules about parts of a pod look at in the rest of it; a template has no `pod`.

    `comparing` allows Lt and Gt in tolerations.
    """

    volumes: Mapping[str, JsonObject]
    claims: Collection[str]
    restart: str
    grace: int | None
    host_users: bool
    comparing: bool
    pod: PodFacts | None
