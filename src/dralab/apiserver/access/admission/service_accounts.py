"""Assigns a service account to each pod, and mounts its token (ServiceAccount).

The container runtime writes the files of the volume.
Source: k8s.io/kubernetes `plugin/pkg/admission/serviceaccount`.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import CREATES, Concerns, Review
from dralab.apiserver.access.admission.pods import new_pod
from dralab.apiserver.storage import Key
from dralab.objects.pods import is_mirror
from dralab.values.json_types import JsonDict

DEFAULT: Final = "default"
VOLUME: Final = "kube-api-access-"
PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
SECONDS: Final = 3607  # which a server takes for "as long as the pod"
MODE: Final = 0o644
TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class PodServiceAccount:
    """Sets the account of each new pod: `default` unless the pod names one.

    With `mounts` the account has to be there, and pods that do not opt out get its token. Then
    `make_default` makes the account `default` of a namespace that has none yet, as a controller
    would a moment later; `new_name` returns a name with a prefix.
    """

    name = "ServiceAccount"
    concerns: Final[Concerns] = {"pods": CREATES}

    def __init__(self, *, mounts: bool = False) -> None:
        self.mounts = mounts
        self.make_default: Callable[[str], JsonDict] | None = None
        self.new_name: Callable[[str], str] = lambda prefix: f"{prefix}token"

    def admit(self, review: Review) -> None:
        """Name the account in the pod, and mount its token. ApiError Forbidden."""
        pod = new_pod(review)
        if pod is None:
            return
        if is_mirror(pod):
            if why := _mirror_refusal(pod["spec"]):
                raise ApiError.forbidden("pods", review.given_name, why)
            return
        spec = pod["spec"]
        name = spec.get("serviceAccountName") or DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if not self.mounts:
            return
        account = self._account(review, name)
        if _mounts_own_secrets_only(account) and (why := _foreign_secret(spec, account)):
            raise ApiError.forbidden("pods", review.given_name, why)
        if not spec.get("imagePullSecrets") and (secrets := account.get("imagePullSecrets")):
            spec["imagePullSecrets"] = [dict(each) for each in secrets]
        if _wants_token(spec, account):
            self._mount(spec)

    def _account(self, review: Review, name: str) -> JsonDict:
        found = review.scope.find(Key("serviceaccounts", review.namespace, name))
        if found is not None:
            return found.value
        if name == DEFAULT and self.make_default is not None:
            return {} if review.options.dry_run else self.make_default(review.namespace)
        why = f'serviceaccount "{name}" not found'
        if "/" in name:
            why = f"""invalid resource name "{name}": [may not contain '/']"""
        raise ApiError.forbidden(
            "pods",
            review.given_name,
            f"error looking up service account {review.namespace}/{name}: {why}",
        )

    def _mount(self, spec: JsonDict) -> None:
        """Mount the token in each container that has nothing else at its path."""
        volumes = spec.get("volumes") or []
        known = next((each["name"] for each in volumes if each["name"].startswith(VOLUME)), "")
        name = known or self.new_name(VOLUME)
        wanted = False
        for part in ("initContainers", "containers"):
            for container in spec.get(part) or ():
                mounts = container.get("volumeMounts") or []
                if any(each.get("mountPath") == PATH for each in mounts):
                    continue
                wanted = True
                mount = {"name": name, "readOnly": True, "mountPath": PATH}
                container["volumeMounts"] = [*mounts, mount]
        if wanted and not known:
            spec["volumes"] = [*volumes, {"name": name, "projected": token_volume()}]


def token_volume() -> JsonDict:
    """Return what is in the volume: the token, the server's CA, the pod's namespace."""
    field: dict[str, Any] = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": SECONDS, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
        ],
        "defaultMode": MODE,
    }


def _mirror_refusal(spec: JsonDict) -> str:
    """Return what a mirror pod has that would grant its node more; empty if nothing."""
    if spec.get("serviceAccountName"):
        return "a mirror pod may not reference service accounts"
    containers = [
        each for part in ("initContainers", "containers") for each in spec.get(part) or ()
    ]
    volumes = spec.get("volumes") or ()
    if any(volume.get("secret") for volume in volumes) or any(
        next(_secrets_of(each), None) for each in containers
    ):
        return "a mirror pod may not reference secrets"
    for volume in volumes:
        sources = (volume.get("projected") or {}).get("sources") or ()
        if any(source.get("serviceAccountToken") for source in sources):
            return "a mirror pod may not use ServiceAccountToken volume projections"
    return ""


def _mounts_own_secrets_only(account: JsonDict) -> bool:
    annotations = (account.get("metadata") or {}).get("annotations") or {}
    return annotations.get("kubernetes.io/enforce-mountable-secrets") in TRUE


def _foreign_secret(spec: JsonDict, account: JsonDict) -> str:
    """Return the refusal of a secret that the pod's account does not list; empty if allowed.

    Source: k8s.io/kubernetes `plugin/pkg/admission/serviceaccount` (limitSecretReferences).
    """
    name = (account.get("metadata") or {}).get("name") or ""
    known = {each.get("name") for each in account.get("secrets") or ()}
    why = f"is not allowed because service account {name} does not reference that"
    for volume in spec.get("volumes") or ():
        secret = (volume.get("secret") or {}).get("secretName")
        if volume.get("secret") and secret not in known:
            return f'volume with secret.secretName="{secret}" {why} secret'
    for part, called in (("initContainers", "init container"), ("containers", "container")):
        for container in spec.get(part) or ():
            for what, secret in _secrets_of(container):
                if secret not in known:
                    by = f"{called} {container.get('name')} with {what} referencing"
                    return f'{by} secret.secretName="{secret}" {why} secret'
    pulled = {each.get("name") for each in account.get("imagePullSecrets") or ()}
    for index, each in enumerate(spec.get("imagePullSecrets") or ()):
        if each.get("name") not in pulled:
            return f'imagePullSecrets[{index}].name="{each.get("name")}" {why} imagePullSecret'
    return ""


def _secrets_of(container: JsonDict) -> Iterator[tuple[str, str | None]]:
    """Yield the secrets of a container's environment, and where they are used."""
    for each in container.get("env") or ():
        if (found := (each.get("valueFrom") or {}).get("secretKeyRef")) is not None:
            yield f"envVar {each.get('name')}", found.get("name")
    for each in container.get("envFrom") or ():
        if (found := each.get("secretRef")) is not None:
            yield "envFrom", found.get("name")


def _wants_token(spec: JsonDict, account: JsonDict) -> bool:
    """Return whether a pod gets a token: the pod's own field wins over its account's."""
    for each in (spec, account):
        if (found := each.get("automountServiceAccountToken")) is not None:
            return bool(found)
    return True
