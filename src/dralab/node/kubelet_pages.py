"""The paths of a kubelet: health, pods, metrics, and the streams of its pods.

`endpoint` serves them over TLS to servers elsewhere; a server in this process asks directly.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse
from dralab.apiserver.http.proxying.nodes import STREAMS, VERBS, NodeRequest
from dralab.apiserver.http.responses import TEXT
from dralab.apiserver.http.routing import not_found, query_of, segments_of
from dralab.apiserver.http.trying import JSON
from dralab.node.streams import PodStreams
from dralab.objects.metadata import status_of

if TYPE_CHECKING:
    from dralab.node.kubelets import Kubelets

HEALTH: Final = ["healthz"]
NAMES_OF_STREAMS: Final = {theirs: ours for ours, theirs in STREAMS.items()}


class KubeletPages:
    """The HTTP paths of this process's nodes, for their server and for their endpoints."""

    def __init__(self, kubelets: "Kubelets") -> None:
        self.kubelets = kubelets
        self._streams = PodStreams(kubelets)

    def answer(self, node: str, wanted: NodeRequest) -> Answer | None:
        """Answer for a pod of a node; None if it is not one of these. ApiError."""
        return self._streams.answer(node, wanted)

    def page(self, node: str, request: HttpRequest) -> Answer | None:
        """Answer for a path of a node's kubelet; None if it is not one of these. ApiError."""
        if node not in self.kubelets.nodes:
            return None
        parts = segments_of(request.path)
        if parts == HEALTH:
            return HttpResponse(headers=TEXT, body=b"ok")
        if request.method not in {"GET", "POST", "HEAD"}:
            raise ApiError("MethodNotAllowed", "this endpoint supports only GET")
        found: dict[str, Callable[[str], HttpResponse]] = {
            "pods": self._pods,
            "runningpods": self._running_pods,
            "metrics": self._metrics,
            "plugins": self._plugins,
        }
        if len(parts) == 1 and parts[0] in found:
            return found[parts[0]](node)
        return self._streams.answer(node, _wanted(parts, request))

    def _metrics(self, node: str) -> HttpResponse:
        claims = self.kubelets.nodes[node].claims
        return HttpResponse(headers=TEXT, body=claims.metrics.text(claims.in_use()).encode())

    def _plugins(self, node: str) -> HttpResponse:
        found = {"plugins": list(self.kubelets.nodes[node].plugin_sockets())}
        return HttpResponse(headers=JSON, body=orjson.dumps(found))

    def _running_pods(self, node: str) -> HttpResponse:
        return self._pods(node, running=True)

    def _pods(self, node: str, *, running: bool = False) -> HttpResponse:
        items = [
            pod
            for pod in self.kubelets.pods.find("node", node)
            if not running or status_of(pod).get("phase") == "Running"
        ]
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        return HttpResponse(headers=JSON, body=orjson.dumps(body))


def _wanted(parts: list[str], request: HttpRequest) -> NodeRequest:
    """Parse a path: /verb/namespace/pod[/uid][/container]. ApiError."""
    verb, *rest = parts or [""]
    least = 2 if verb == "portForward" else 3
    # All but logs may name the pod's UID, too.
    most = least if verb == "containerLogs" else least + 1
    if verb not in VERBS.values() or not least <= len(rest) <= most:
        raise not_found()
    query = {NAMES_OF_STREAMS.get(k, k): v for k, v in query_of(request.query).items()}
    return NodeRequest(
        verb=verb,
        namespace=rest[0],
        pod=rest[1],
        container="" if verb == "portForward" else rest[-1],
        query=query,
        offered=request.headers.get("sec-websocket-protocol", ""),
    )
