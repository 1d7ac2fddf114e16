"""The pod-resources socket of a node: which devices its pods have, for monitoring agents.

Source: kubelet 1.36, `pkg/kubelet/apis/podresources` (service `v1.PodResourcesLister`). Only
devices of claims are told; the nodes of dralab have no device plugins and assign no CPUs. Needs the
extra `dralab[grpc]`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dralab.contracts import wire
from dralab.contracts.plugin import PreparedDevice
from dralab.objects.metadata import key_of
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonDict, JsonObject

if TYPE_CHECKING:
    from dralab.node.kubelet import Kubelet

SERVICE: Final = "v1.PodResourcesLister"
SOCKET: Final = Path("pod-resources", "kubelet.sock")
WORKERS: Final = 4


class PodResources:
    """Serves the socket below a kubelet's root from `start` to `stop`."""

    def __init__(self, kubelet: "Kubelet", root: Path) -> None:
        self.kubelet = kubelet
        self.path = root / SOCKET
        self._server: Any = None

    def start(self) -> None:
        """Start to answer. SocketError: the socket cannot be created."""
        target = wire.address(str(self.path))
        grpc, messages = wire.grpc(), wire.pod_resources()
        methods = {
            "List": (self._list, messages.ListPodResourcesRequest),
            "Get": (self._get, messages.GetPodResourcesRequest),
            "GetAllocatableResources": (self._allocatable, messages.AllocatableResourcesRequest),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=request.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name, (answer, request) in methods.items()
        }
        server = grpc.server(ThreadPoolExecutor(WORKERS, "pod-resources"))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
            server.add_insecure_port(target)
        except (OSError, RuntimeError) as error:
            raise wire.SocketError(f"{self.path}: cannot be served: {error}") from error
        server.start()
        self._server = server

    def stop(self) -> None:
        """Stop answering, and remove the socket."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
            self.path.unlink(missing_ok=True)

    def _list(self, _request: Any, _context: Any) -> Any:
        pods = sorted(self.kubelet.kubelets.pods.find("node", self.kubelet.name), key=key_of)
        found = wire.pod_resources().ListPodResourcesResponse()
        found.pod_resources.extend(self._pod(pod) for pod in pods if not is_finished(pod))
        return found

    def _get(self, request: Any, context: Any) -> Any:
        name, namespace = request.pod_name, request.pod_namespace
        for pod in self.kubelet.kubelets.pods.find("node", self.kubelet.name):
            if (key_of(pod).namespace, key_of(pod).name) == (namespace, name):
                return wire.pod_resources().GetPodResourcesResponse(pod_resources=self._pod(pod))
        code = wire.grpc().StatusCode.UNKNOWN  # as Go's servers send a plain error
        return context.abort(code, f"pod {name} in namespace {namespace} not found")

    def _allocatable(self, _request: Any, _context: Any) -> Any:
        return wire.pod_resources().AllocatableResourcesResponse()

    def _pod(self, pod: JsonDict) -> Any:
        key, spec = key_of(pod), pod["spec"]
        # Of init containers, only those that go on running.
        sidecars = [
            each
            for each in spec.get("initContainers") or ()
            if each.get("restartPolicy") == "Always"
        ]
        found = wire.pod_resources().PodResources(name=key.name, namespace=key.namespace)
        for container in [*sidecars, *(spec.get("containers") or ())]:
            entry = found.containers.add(name=container["name"])
            self._claims(pod, container, entry.dynamic_resources.add)
        return found

    def _claims(self, pod: JsonDict, container: JsonObject, add: Callable[..., Any]) -> None:
        for ref, devices in self.kubelet.claims.of_containers.by_claim(pod, container):
            claim = add(claim_name=ref.name, claim_namespace=ref.namespace)
            for driver, device in devices:
                _fill(claim.claim_resources.add(), driver, device)


def _fill(entry: Any, driver: str, device: PreparedDevice) -> None:
    entry.driver_name, entry.pool_name, entry.device_name = driver, device.pool, device.device
    for name in device.cdi_ids:
        entry.cdi_devices.add(name=name)
    if device.share_id:
        entry.share_id = device.share_id
