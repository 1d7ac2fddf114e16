"""What classes add: runtime classes to pods, the default ingress class to ingresses.

Source: k8s.io/kubernetes `plugin/pkg/admission/runtimeclass`,
`plugin/pkg/admission/network/defaultingressclass`.
"""

from typing import Final

from dralab.api.core.access import any_name
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import CREATES, Concerns, Review
from dralab.apiserver.access.admission.pods import new_pod
from dralab.apiserver.access.admission.storage import newest_default
from dralab.apiserver.storage import Key
from dralab.objects.metadata import annotations_of
from dralab.values.json_types import JsonDict

RUNTIME_CLASSES: Final = "node.k8s.io/runtimeclasses"
INGRESSES: Final = "networking.k8s.io/ingresses"
INGRESS_CLASSES: Final = "networking.k8s.io/ingressclasses"
INGRESS_ANNOTATION: Final = "kubernetes.io/ingress.class"
DEFAULT_INGRESS: Final = "ingressclass.kubernetes.io/is-default-class"
NODES: Final = "nodes"
NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class RuntimeClasses:
    """Writes the overhead and the placement of its runtime class into a pod (RuntimeClass)."""

    name = "RuntimeClass"
    concerns: Final[Concerns] = {"pods": CREATES}

    def admit(self, review: Review) -> None:
        """Raise Forbidden if the class does not exist or the pod contradicts it."""
        pod = new_pod(review)
        if pod is None or not (given := pod["spec"].get("runtimeClassName")):
            return
        found = self._found(review, given)
        spec = pod["spec"]
        overhead = (found.get("overhead") or {}).get("podFixed")
        if overhead is not None:
            if spec.get("overhead") and spec["overhead"] != overhead:
                raise _mismatch(review)
            spec["overhead"] = dict(overhead)
        scheduling = found.get("scheduling") or {}
        selector = spec.get("nodeSelector") or {}
        for key, value in (scheduling.get("nodeSelector") or {}).items():
            if selector.get(key, value) != value:
                raise _forbidden(
                    review,
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                    f"pod.spec.nodeSelector[{key}] = {selector[key]}",
                )
            selector = {**selector, key: value}
        if selector:
            spec["nodeSelector"] = selector
        tolerations = spec.get("tolerations") or []
        added = [each for each in scheduling.get("tolerations") or () if each not in tolerations]
        if added:
            spec["tolerations"] = [*tolerations, *(dict(each) for each in added)]

    def validate(self, review: Review) -> None:
        """Raise Forbidden if a pod sets an overhead without a runtime class."""
        pod = new_pod(review)
        if pod is None:
            return
        spec = pod["spec"]
        given = spec.get("runtimeClassName")
        if not given and spec.get("overhead") is None:
            return
        found = self._found(review, given) if given else {}
        overhead = (found.get("overhead") or {}).get("podFixed")
        if overhead is not None:
            if spec.get("overhead") != overhead:
                raise _mismatch(review)
        elif spec.get("overhead") is not None:
            raise _forbidden(
                review,
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined "
                "Overhead",
            )

    def _found(self, review: Review, name: str) -> JsonDict:
        if problems := any_name(name):
            # Upstream asks a client for it, which refuses such a name.
            raise ApiError.failed(f'invalid resource name "{name}": [{" ".join(problems)}]')
        found = review.scope.find(Key(RUNTIME_CLASSES, "", name))
        if found is None:
            raise _forbidden(review, f'pod rejected: RuntimeClass "{name}" not found')
        return found.value


class DefaultIngressClass:
    """Gives ingresses without a class the default one."""

    name = "DefaultIngressClass"
    concerns: Final[Concerns] = {INGRESSES: CREATES}

    def admit(self, review: Review) -> None:
        """Name the class in a new ingress."""
        if review.kind.hub != INGRESSES or review.operation != "CREATE" or review.value is None:
            return
        spec = review.value.setdefault("spec", {})
        if review.subresource or spec.get("ingressClassName") is not None:
            return
        if INGRESS_ANNOTATION in annotations_of(review.value):
            return
        if name := newest_default(review.scope.all_of(INGRESS_CLASSES, ""), [DEFAULT_INGRESS]):
            spec["ingressClassName"] = name


class NewNodeTaint:
    """Keeps pods away from a new node until it is reported ready.

    The plugin TaintNodesByCondition.
    """

    name = "TaintNodesByCondition"
    concerns: Final[Concerns] = {NODES: CREATES}

    def admit(self, review: Review) -> None:
        """Taint a new node."""
        if review.kind.hub != NODES or review.operation != "CREATE" or review.value is None:
            return
        taints = review.value.setdefault("spec", {}).setdefault("taints", [])
        if not any({**each, **NOT_READY} == each for each in taints):
            taints.append(dict(NOT_READY))


def _mismatch(review: Review) -> ApiError:
    return _forbidden(
        review, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    )


def _forbidden(review: Review, why: str) -> ApiError:
    return ApiError.forbidden("pods", review.given_name, why)
