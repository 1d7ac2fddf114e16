"""What admission adds to pods: priority, tolerations, a service account."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api.core.cluster import SYSTEM_CLASSES
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import WRITES, Concerns, Review
from dralab.apiserver.storage import Key, Stored
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.taints import NO_EXECUTE, is_about

PRIORITY_HUB: Final = "scheduling.k8s.io/priorityclasses"
GROUP_HUBS: Final = ("scheduling.k8s.io/podgroups", "scheduling.k8s.io/compositepodgroups")
SECONDS: Final = 300
TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


BIND: Final = "binding"
TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def new_pod(review: Review) -> dict[str, Any] | None:
    """Return the pod of a review if it is a new pod."""
    if review.kind.hub != "pods" or review.operation != "CREATE" or review.subresource:
        return None
    return review.value


class PodPriority:
    """Looks up what a priority class stands for (Priority)."""

    name = "Priority"
    concerns: Final[Concerns] = {
        "pods": WRITES,
        PRIORITY_HUB: WRITES | {"DELETE"},
        **dict.fromkeys(GROUP_HUBS, WRITES),
    }

    def __init__(self) -> None:
        self._default: tuple[Sequence[Stored], str] = ((), "")  # and the classes that it is among

    def admit(self, review: Review) -> None:
        """Write the number and the policy of the class into a pod; Forbidden if it is unknown.

        A pod that names none has the class for all others, if there is one; there may be only one.
        """
        if review.kind.hub == PRIORITY_HUB and review.operation == "DELETE":
            if review.name in SYSTEM_CLASSES:
                why = "this is a system priority class and cannot be deleted"
                group = review.kind.group
                raise ApiError.forbidden("priorityclasses", review.name, why, group=group)
            return
        if review.kind.hub == PRIORITY_HUB and review.operation in {"CREATE", "UPDATE"}:
            self._refuse_second_default(review)
        if review.kind.hub == "pods" and review.operation == "UPDATE":
            _keep_priority(review)
        if review.kind.hub in GROUP_HUBS and review.operation == "CREATE":
            self._admit_group(review)
        pod = new_pod(review)
        if pod is None:
            return
        spec = pod["spec"]
        number, policy = self._established(review, spec)
        given = spec.get("priority")
        if given is not None and given != number:
            raise ApiError.forbidden(
                "pods",
                review.name,
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {number} from the given PriorityClass "
                "name",
            )
        spec["priority"] = number
        if (given_policy := spec.get("preemptionPolicy")) and given_policy != policy:
            raise ApiError.forbidden(
                "pods",
                review.name,
                f"the string value of PreemptionPolicy ({given_policy}) must not be provided in "
                f"pod spec; priority admission controller computed {policy} from the given "
                "PriorityClass name",
            )
        spec["preemptionPolicy"] = policy

    def _admit_group(self, review: Review) -> None:
        spec = None if review.value is None else review.value.get("spec")
        if spec is None or review.subresource or review.kind.version == "v1alpha2":
            return
        number, _ = self._established(review, spec)
        given = spec.get("priority")
        if given is not None and given != number:
            kind = "composite pod group" if "composite" in review.kind.plural else "pod group"
            why = (
                f"priority set in the {kind} ({given}) must match the priority computed ({number}) "
                "based on the priority class set in the spec"
            )
            raise _forbidden(review, why)
        spec["priority"] = number

    def _established(self, review: Review, spec: dict[str, Any]) -> tuple[int, str]:
        """Return the number and the policy of a spec's class, and name a default class in it."""
        name = spec.get("priorityClassName") or self._default_class(review)
        number, policy = 0, "PreemptLowerPriority"
        if name:
            spec["priorityClassName"] = name
            found = review.scope.find(Key(PRIORITY_HUB, "", name))
            if found is None:
                raise _forbidden(review, f"no PriorityClass with name {name} was found")
            number = found.value.get("value", 0)
            policy = found.value.get("preemptionPolicy") or policy
        return number, policy

    def _default_class(self, review: Review) -> str:
        """Return the name of the default class, or an empty text."""
        classes = review.scope.all_of(PRIORITY_HUB, "")
        known, name = self._default
        if classes != known:  # they rarely are: objects of the store are compared by identity
            found = [
                (stored.value.get("value", 0), stored.value["metadata"]["name"])
                for stored in classes
                if stored.value.get("globalDefault")
            ]
            name = min(found)[1] if found else ""
            self._default = (classes, name)
        return name

    def _refuse_second_default(self, review: Review) -> None:
        if review.value is None or not review.value.get("globalDefault"):
            return
        known = self._default_class(review)
        if known not in {"", review.name}:
            raise ApiError.forbidden(
                "priorityclasses",
                review.name,
                f"PriorityClass {known} is already marked as default. Only one default can exist",
                group="scheduling.k8s.io",
            )


def _forbidden(review: Review, why: str) -> ApiError:
    return ApiError.forbidden(review.kind.plural, review.name, why, group=review.kind.group)


def _keep_priority(review: Review) -> None:
    """Keep the priority if the client sends a pod without one."""
    if review.value is None or review.old is None:
        return
    spec, before = review.value["spec"], review.old["spec"]
    for part in ("priority", "preemptionPolicy"):
        if part not in spec and part in before:
            spec[part] = before[part]


class DefaultTolerations:
    """Lets pods stay on a node that is not ready for five minutes (DefaultTolerationSeconds)."""

    name = "DefaultTolerationSeconds"
    concerns: Final[Concerns] = {"pods": WRITES}

    def admit(self, review: Review) -> None:
        """Add the tolerations that a pod does not have."""
        if review.kind.hub != "pods" or review.subresource or review.value is None:
            return
        spec = review.value["spec"]
        given = spec.get("tolerations") or []
        missing = [
            key
            for key in TOLERATED
            # Whatever its operator says (upstream asks for key and effect alone).
            if not any(is_about(each, key, NO_EXECUTE) for each in given)
        ]
        if missing:
            spec["tolerations"] = given + [
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": SECONDS,
                }
                for key in missing
            ]


class TopologyLabels:
    """Gives a pod the topology of its node: its zone and region (PodTopologyLabels)."""

    name = "PodTopologyLabels"
    concerns: Final[Concerns] = {"pods": WRITES}

    def admit(self, review: Review) -> None:
        """Copy the labels of the node to a pod that is created on it, or bound to it."""
        pod = review.value
        created = review.operation == "CREATE" and not review.subresource
        if pod is None or review.kind.hub != "pods" or not (created or review.subresource == BIND):
            return
        node = review.scope.find(Key("nodes", "", spec_of(pod).get("nodeName") or ""))
        labels = labels_of(node.value) if node is not None else {}
        if topology := {name: labels[name] for name in TOPOLOGY if name in labels}:
            pod["metadata"]["labels"] = {**labels_of(pod), **topology}
