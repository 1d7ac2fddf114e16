"""Enforces the pod security level in a namespace's labels (PodSecurity).

What each level forbids is in `objects.pod_security`.
Source: k8s.io/pod-security-admission `admission`, `api`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import WRITES, Concerns, Review
from dralab.apiserver.access.scope import unnoted
from dralab.apiserver.storage import Key, Stored
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.pod_security import (
    LATEST,
    LEVELS,
    PRIVILEGED,
    RESTRICTED,
    SecurityFinding,
    Version,
    violations,
)
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

PREFIX: Final = "pod-security.kubernetes.io/"
MODES: Final = ("enforce", "audit", "warn")
NEWEST: Final = "latest"
VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]{0,3})", re.ASCII)
# Where the pod is in each kind; all but pods themselves are only warned about.
PODS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": (),
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "apps/daemonsets": ("spec", "template"),
    "apps/deployments": ("spec", "template"),
    "apps/replicasets": ("spec", "template"),
    "apps/statefulsets": ("spec", "template"),
    "batch/cronjobs": ("spec", "jobTemplate", "spec", "template"),
    "batch/jobs": ("spec", "template"),
}
CHECKED: Final = ("", "ephemeralcontainers")  # subresources that change what a pod may do
MOST: Final = 3_000  # pods that a change of a namespace looks at


@dataclass(frozen=True, slots=True)
class Standard:
    """A level as of a version, which is `latest` or v1.N."""

    level: str = PRIVILEGED
    version: str = NEWEST

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    @property
    def number(self) -> Version:
        """The version as numbers; a version newer than all checks counts as the newest."""
        return LATEST if self.version == NEWEST else min(LATEST, (1, int(self.version[3:])))

    def violations(self, pod: JsonDict) -> list[SecurityFinding]:
        """Return everything in a pod that the level forbids."""
        return violations(self.level, self.number, pod.get("metadata") or {}, spec_of(pod))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSecurity:
    """The levels that a namespace enforces, audits and warns about."""

    enforce: Standard = Standard()
    audit: Standard = Standard()
    warn: Standard = Standard()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecuritySettings:
    """The policy of namespaces without labels, and the exemptions from all policies."""

    defaults: NamespaceSecurity = field(default_factory=NamespaceSecurity)
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


class PodSecurity:
    """Refuses pods that violate the enforced level; warns about templates that will fail."""

    name = "PodSecurity"
    concerns: Final[Concerns] = dict.fromkeys((*PODS, "namespaces"), WRITES)

    def __init__(self, settings: PodSecuritySettings | None = None) -> None:
        self.settings = settings or PodSecuritySettings()
        # By namespace: the policy, and the object that it was read from.
        self._policies: dict[str, tuple[Stored, NamespaceSecurity]] = {}

    def validate(self, review: Review) -> None:
        """Check a pod, a pod template, or a namespace. ApiError Forbidden, Invalid."""
        hub = review.kind.hub
        if review.value is None or review.operation not in {"CREATE", "UPDATE"}:
            return
        if hub == "namespaces":
            if not review.subresource:
                self._admit_namespace(review)
        elif hub in PODS and review.subresource in CHECKED:
            self._admit_pod(review, PODS[hub])

    def _admit_pod(self, review: Review, path: Sequence[str]) -> None:
        policy = self._policy_of(review)
        if policy.enforce.level == policy.warn.level == policy.audit.level == PRIVILEGED:
            if not path and review.scope.annotate is not unnoted:
                review.scope.annotate(f"{PREFIX}enforce-policy", str(policy.enforce))
            return
        pod = _at(review.value, path)
        if pod is None:
            return
        if exempt := self._exemption(review, pod):
            review.scope.annotate(f"{PREFIX}exempt", exempt)
            return
        if review.old is not None and not _is_other(pod, _at(review.old, path)):
            return
        if found := policy.audit.violations(pod):
            text = f'would violate PodSecurity "{policy.audit}": {_told(found)}'
            review.scope.annotate(f"{PREFIX}audit-violations", text)
        if not path:
            review.scope.annotate(f"{PREFIX}enforce-policy", str(policy.enforce))
        if not path and (found := policy.enforce.violations(pod)):
            kind = review.kind
            raise ApiError.forbidden(
                kind.plural,
                review.given_name,
                f'violates PodSecurity "{policy.enforce}": {_told(found)}',
            )
        if found := policy.warn.violations(pod):
            review.scope.warnings.append(
                f'would violate PodSecurity "{policy.warn}": {_told(found)}'
            )

    def _policy_of(self, review: Review) -> NamespaceSecurity:
        namespace = review.scope.find(Key("namespaces", "", review.namespace))
        if namespace is None:
            return policy_of({}, self.settings.defaults)[0]
        known = self._policies.get(review.namespace)
        if known is not None and known[0] is namespace:
            return known[1]
        found = policy_of(labels_of(namespace.value), self.settings.defaults)[0]
        if len(self._policies) >= MOST:
            self._policies.clear()
        self._policies[review.namespace] = (namespace, found)
        return found

    def _exemption(self, review: Review, pod: JsonDict) -> str:
        """Return the reason for a pod's exemption; empty if it is not exempt."""
        settings = self.settings
        if review.namespace in settings.namespaces:
            return "namespace"
        if review.user.name in settings.usernames:
            return "user"
        exempt = spec_of(pod).get("runtimeClassName", "") in settings.runtime_classes
        return "runtimeClass" if exempt else ""

    def _admit_namespace(self, review: Review) -> None:
        """Refuse labels that do not name a level; warn about pods that violate a new one."""
        new, old = (
            labels_of(each) if each is not None else {} for each in (review.value, review.old)
        )
        policy, errors = policy_of(new, self.settings.defaults)
        before, known = policy_of(old, self.settings.defaults)
        if errors and errors != known:
            raise fields.invalid("Namespace", review.given_name, errors)
        name = review.given_name
        if review.old is None or policy.enforce == before.enforce:
            return
        if name in self.settings.namespaces:
            return
        beyond: dict[str, list[str]] = {}
        for stored in review.scope.all_of("pods", name)[:MOST]:
            runtime = spec_of(stored.value).get("runtimeClassName", "")
            if runtime in self.settings.runtime_classes:
                continue
            if found := policy.enforce.violations(stored.value):
                reasons = ", ".join(each.reason for each in found)
                beyond.setdefault(reasons, []).append(stored.key.name)
        if beyond:
            review.scope.warnings.append(
                f'existing pods in namespace "{name}" violate the new PodSecurity enforce level '
                f'"{policy.enforce}"'
            )
        for reasons, pods in sorted(beyond.items(), key=lambda each: min(each[1])):
            others = len(pods) - 1
            more = f" (and {others} other pod{'s' if others > 1 else ''})" if others else ""
            review.scope.warnings.append(f"{min(pods)}{more}: {reasons}")


def policy_of(
    labels: Mapping[str, str], defaults: NamespaceSecurity
) -> tuple[NamespaceSecurity, list[FieldError]]:
    """Return the policy that labels ask for, and the labels that cannot be read.

    A level that cannot be read counts as restricted for enforcement, else as privileged.
    """
    if not any(label.startswith(PREFIX) for label in labels):
        return defaults, []
    errors: list[FieldError] = []
    found: dict[str, Standard] = {}
    for mode in MODES:
        standard: Standard = getattr(defaults, mode)
        level = labels.get(PREFIX + mode)
        if level is not None:
            if level not in LEVELS:
                why = f"must be one of {', '.join(LEVELS)}"
                errors.append(_label_error(mode, level, why))
                level = RESTRICTED if mode == "enforce" else PRIVILEGED
            standard = replace(standard, level=level)
        version = labels.get(f"{PREFIX}{mode}-version")
        if version is not None:
            if version != NEWEST and not VERSION.fullmatch(version):
                why = 'must be "latest" or "v1.x"'
                errors.append(_label_error(f"{mode}-version", version, why))
                version = NEWEST
            standard = replace(standard, version=version)
        found[mode] = standard
    # A namespace that enforces a level also gets warnings about templates that violate it.
    enforced = found["enforce"]
    for mode in ("audit", "warn"):
        asked = labels.get(PREFIX + mode) in LEVELS
        stricter = LEVELS.index(enforced.level) > LEVELS.index(found[mode].level)
        if PREFIX + "enforce" in labels and not asked and stricter:
            versioned = f"{PREFIX}{mode}-version" in labels
            version = found[mode].version if versioned else enforced.version
            found[mode] = Standard(enforced.level, version)
    return NamespaceSecurity(**found), errors


def _label_error(name: str, value: str, why: str) -> FieldError:
    return fields.invalid_value(f"metadata.labels[{PREFIX}{name}]", value, why)


def _told(found: Sequence[SecurityFinding]) -> str:
    return ", ".join(str(each) for each in found)


def _at(value: Mapping[str, Any] | None, path: Sequence[str]) -> JsonDict | None:
    found: Any = value
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _is_other(pod: JsonDict, before: JsonDict | None) -> bool:
    """Return whether a change of a pod can matter: not one of images or deadlines alone."""
    return before is None or list(_heeded(pod)) != list(_heeded(before))


def _heeded(pod: JsonDict) -> Iterator[Any]:
    """Yield the parts of a pod that determine its level."""
    yield (pod.get("metadata") or {}).get("annotations") or {}
    for part, value in sorted(spec_of(pod).items()):
        if part in {"containers", "initContainers", "ephemeralContainers"}:
            for each in value or ():
                yield part, {name: item for name, item in each.items() if name != "image"}
        elif part not in {"activeDeadlineSeconds", "tolerations"}:
            yield part, value
