"""Drivers for Kubernetes 1.27 to 1.30 behind their sockets: called as kubelets did then.

Source: kubelet 1.30, `pkg/kubelet/cm/dra/plugin`: `v1alpha3.Node`, where a driver does not know it
`v1alpha2.Node`, and the stream of named resources.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dralab.contracts import old_wire, wire
from dralab.contracts.plugin import ClaimRef, PluginError, PrepareResult
from dralab.kernel.clock import Clock
from dralab.node.socket_plugin import CALL, HEALTH_AGAIN, SocketPlugin, text_of, written
from dralab.values.json_types import JsonDict


class OldSocketPlugin(SocketPlugin):
    """A driver of that time at the other end of a socket."""

    def __init__(self, driver: str, endpoint: str, clock: Clock) -> None:
        super().__init__(driver, endpoint, old_wire.version(), clock)
        # Told, from a thread, which named resources the driver lists.
        self.on_resources: Callable[[Sequence[JsonDict]], None] = lambda _resources: None

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Prepare claims. PluginError: no answer within 45 s."""
        try:
            return super().prepare(claims)
        except PluginError as error:
            if not _is_unknown(error):
                raise
        return {ref.uid: self._one("Prepare", ref) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Unprepare claims. PluginError: no answer within 45 s."""
        try:
            return super().unprepare(claims)
        except PluginError as error:
            if not _is_unknown(error):
                raise
        return {ref.uid: self._one("Unprepare", ref).error for ref in claims}

    def _one(self, verb: str, ref: ClaimRef) -> PrepareResult:
        """Call an old driver for one claim; an error is of this claim alone."""
        messages = self.version.messages
        method = self._channel.unary_unary(
            f"/{old_wire.OLDEST_SERVICE}/Node{verb}Resource",
            request_serializer=written,
            # Theirs has no errors, and nothing at all after Unprepare: this one reads both.
            response_deserializer=messages.NodePrepareResourceResponse.FromString,
        )
        request = messages.NodeResourceRequest(
            namespace=ref.namespace,
            claim_uid=ref.uid,
            claim_name=ref.name,
            resource_handle=(ref.handle or {}).get("data", ""),
        )
        try:
            return old_wire.prepared_of(method(request, timeout=CALL))
        except (wire.grpc().RpcError, ValueError) as error:
            return PrepareResult(error=text_of(error))

    def _listen(self) -> None:
        grpc, messages = wire.grpc(), self.version.messages
        method = self._channel.unary_stream(
            f"/{self.version.service}/NodeListAndWatchResources",
            request_serializer=written,
            response_deserializer=messages.NodeListAndWatchResourcesResponse.FromString,
        )
        while not self._closed.is_set():
            try:
                self._stream = method(messages.NodeListAndWatchResourcesRequest())
                for response in self._stream:
                    self.on_resources(old_wire.resources_of(response))
            except grpc.RpcError as error:
                if _code(error) is grpc.StatusCode.UNIMPLEMENTED:
                    return
                self._closed.wait(HEALTH_AGAIN)
            except ValueError:
                return  # the channel is closed
            else:
                return  # what it lists never changes, says a driver that ends the stream


def _code(error: Any) -> Any:
    with contextlib.suppress(AttributeError):
        return error.code()
    return None


def _is_unknown(error: PluginError) -> bool:
    return _code(error.__cause__) is wire.grpc().StatusCode.UNIMPLEMENTED
