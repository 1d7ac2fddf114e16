"""Pods, and the kinds that hold templates of pods."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.pod_defaults import default_pod, default_pod_spec, qos_class
from dralab.api.core.pod_rules.annotations import (
    annotation_change_problems,
    pod_annotation_problems,
    profile_warnings,
    take_over_profiles,
)
from dralab.api.core.pod_rules.facts import PodFacts
from dralab.api.core.pod_rules.known import KnownPods
from dralab.api.core.pod_rules.resizes import resize_problems
from dralab.api.core.pod_rules.spec import pod_spec_problems
from dralab.api.core.pod_rules.updates import ephemeral_problems, pod_update_problems
from dralab.api.core.pod_rules.warnings import pod_warnings
from dralab.api.fields import FieldError
from dralab.api.metadata import annotation_problems, label_problems
from dralab.api.resource.features import (
    COMPARING_TOLERATIONS,
    DEFAULT_1_36,
    RESOURCE_HEALTH,
    Features,
)
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict, JsonObject

GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"


class WithPods(Strategy):
    """What holds a pod or a template of pods; `features` are the gates that are on."""

    def __init__(self, features: Features = DEFAULT_1_36) -> None:
        self.features = features

    def may_compare(self, before: Mapping[str, Any] | None) -> bool:
        """Return whether tolerations may compare numbers: by the gate, or as they did before."""
        return COMPARING_TOLERATIONS in self.features or any(
            toleration.get("operator") in {"Lt", "Gt"}
            for toleration in (before or {}).get("tolerations") or ()
        )

    def template_warnings(
        self, template: JsonDict, path: str, value: JsonDict, old: JsonDict | None
    ) -> list[str]:
        """Return the warnings about a new template of pods."""
        if old and old["metadata"].get("generation") == value["metadata"].get("generation"):
            return []
        meta = template.get("metadata") or {}
        return pod_warnings(PodFacts.of(template.get("spec") or {}, meta), f"{path}.")

    def template_problems(
        self,
        template: JsonDict,
        path: str,
        before: Mapping[str, Any] | None,
        *,
        restart: tuple[str, ...] = ("Always",),
    ) -> list[FieldError]:
        """Return the errors of a template that was `before`, or None if it is new."""
        # Upstream leaves `metadata` out of these paths.
        metadata = template.get("metadata") or {}
        errors = label_problems(metadata.get("labels") or {}, f"{path}.labels")
        errors += annotation_problems(metadata.get("annotations") or {}, f"{path}.annotations")
        spec = template.get("spec") or {}
        comparing = self.may_compare((before or {}).get("spec"))
        errors += pod_spec_problems(spec, f"{path}.spec", comparing=comparing)
        if spec.get("ephemeralContainers"):
            why = "ephemeral containers not allowed in pod template"
            errors.append(fields.forbidden(f"{path}.spec.ephemeralContainers", why))
        policy = spec.get("restartPolicy")
        if policy and policy not in restart:
            errors.append(fields.not_supported(f"{path}.spec.restartPolicy", policy, restart))
        return errors


class PodStrategy(WithPods):
    """Pods: most of a spec cannot be changed."""

    status_keeps = frozenset({"labels", "annotations", "finalizers"})

    def __init__(self, features: Features = DEFAULT_1_36) -> None:
        super().__init__(features)
        self._known = KnownPods(self._problems, pod_warnings)

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        default_pod_spec(spec)
        default_pod(spec)

    def creation_warnings(self, value: JsonDict) -> list[str]:
        """Warn of annotations that became fields."""
        return profile_warnings(value["metadata"], value["spec"])

    def prepare_create(self, value: JsonDict, now: str) -> None:
        """Begin pending; gates show in a condition."""
        spec = value["spec"]
        take_over_profiles(value["metadata"], spec)
        status: JsonDict = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": now,
                    "reason": "SchedulingGated",
                    "message": GATED,
                }
            ]
        value["status"] = status

    def prepare_status(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Keep what the status may not lose."""
        before = old.get("status") or {}
        status = new.setdefault("status", {})
        if RESOURCE_HEALTH not in self.features and not _healths(before):
            for container in _healths(status):
                del container["allocatedResourcesStatus"]
        if "qosClass" in before:
            status.setdefault("qosClass", before["qosClass"])

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a new pod."""
        return self.judged(value)[0]

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return the warnings about a new pod."""
        return [] if old is not None else self.judged(value)[1]

    def judged(self, value: JsonDict) -> tuple[list[FieldError], list[str]]:
        """Return the errors of a new pod, or its warnings if there are none."""
        errors, told = self._known.judged(PodFacts.of(value["spec"], value["metadata"]))
        return errors, list(told)

    def _problems(self, pod: PodFacts) -> list[FieldError]:
        comparing = self.may_compare(None)
        errors = pod_spec_problems(pod.spec, "spec", comparing=comparing, pod=pod)
        errors += pod_annotation_problems(pod)
        if pod.spec.get("ephemeralContainers"):
            errors.append(fields.forbidden("spec.ephemeralContainers", "cannot be set on create"))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what a change may not do."""
        comparing = self.may_compare(old["spec"])
        spec, pod = new["spec"], PodFacts.of(new["spec"], new["metadata"])
        noted = [
            *pod_annotation_problems(pod),
            *annotation_change_problems(new["metadata"], old["metadata"]),
        ]
        errors = pod_update_problems(spec, old["spec"])
        if errors and spec.get("containers"):
            return [*noted, *errors]
        judged = pod_spec_problems(spec, "spec", comparing=comparing, pod=pod)
        return [*judged, *noted, *errors]

    def validate_part(self, subresource: str, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what a change of ephemeral containers, or a resize, may not do."""
        if subresource not in {"ephemeralcontainers", "resize"}:
            return []
        comparing, pod = self.may_compare(old["spec"]), PodFacts.of(new["spec"], new["metadata"])
        errors = pod_spec_problems(pod.spec, "spec", comparing=comparing, pod=pod)
        if subresource == "resize":
            return errors + resize_problems(new, old)
        return ephemeral_problems(new, old, errors)


def default_template(holder: JsonDict) -> None:
    """Fill in a pod template."""
    template = holder.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def _healths(status: JsonObject) -> list[JsonDict]:
    """Return the statuses of containers that have the health of devices."""
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    found = [each for kind in kinds for each in status.get(kind) or ()]
    return [each for each in found if "allocatedResourcesStatus" in each]
