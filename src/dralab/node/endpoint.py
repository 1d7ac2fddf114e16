"""A node's endpoint for the API server: logs, commands, ports and pods, over TLS.

The paths are a kubelet's. A client must present the token that the node stores in a Secret beside
its lease. The Secret also has the CA by which the server verifies the node.
"""

import asyncio
import base64
import contextlib
import hmac
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.chain import bearer, unauthorized
from dralab.apiserver.http.browser_guard import Guard
from dralab.apiserver.http.connections import tls
from dralab.apiserver.http.connections.asgi_base import AsgiBase, Outcome
from dralab.apiserver.http.connections.listening import address, listen
from dralab.apiserver.http.connections.sending import refused
from dralab.apiserver.http.connections.serving import HttpServer
from dralab.apiserver.http.messages import HttpRequest, WatchStream
from dralab.apiserver.http.proxying.nodes import SECRETS_OF_NODES
from dralab.apiserver.http.routing import not_found, segments_of
from dralab.files.reading import read_own
from dralab.node.kubelet_pages import HEALTH, KubeletPages
from dralab.runtime.resources import SECRETS
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.node.kubelets import Kubelets
    from dralab.runtime.client import Client

SECRET_TYPE: Final = "dralab.dev/kubelet"
# The file, beside the token, that says where the endpoint is.
ADDRESS: Final = "address"


class NodeApp(AsgiBase):
    """What the endpoint of one node answers."""

    def __init__(self, kubelets: "Kubelets", node: str, token: str) -> None:
        super().__init__()
        self._pages = KubeletPages(kubelets)
        self._node = node
        self._token = token.encode()
        self._guard = Guard()

    def admit(self, request: HttpRequest) -> None:
        """Require the token, except for the health. ApiError."""
        if segments_of(request.path) == HEALTH:
            self._guard.check(request)
            return
        shown = bearer(request.headers.get("authorization", "")).encode()
        if not hmac.compare_digest(shown, self._token):
            raise unauthorized()

    async def submit(self, request: HttpRequest) -> Outcome:
        """Answer a request."""
        try:
            return self._answer(request)
        except ApiError as error:
            return refused(error)

    def _answer(self, request: HttpRequest) -> Outcome:
        answer = self._pages.page(self._node, request)
        if answer is None or isinstance(answer, WatchStream):
            raise not_found()
        return answer


class EndpointServer:
    """The endpoint of a node in a separate process, served by a thread from `start` to `stop`.

    Its authority, certificate and token are kept in `directory`. ServingError if it cannot
    listen at `host` and `port` (0: a free one).
    """

    def __init__(
        self, kubelets: "Kubelets", node: str, directory: Path, host: str, port: int
    ) -> None:
        self._node = node
        now = kubelets.manager.engine.clock.now()
        self._listener = listen(host, port)
        try:
            self._certificate = tls.certificate(directory, now, [host])
            self._token = tls.token(directory)
        except BaseException:
            self._listener.close()
            raise
        self.address = address(self._listener)
        self._told = directory / ADDRESS
        answers = NodeApp(kubelets, node, self._token)
        self._server = HttpServer(answers, self._listener, self._certificate)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet-endpoint", daemon=True)
        self._started = threading.Event()

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()
        self._started.wait()
        host, port = self.address
        with contextlib.suppress(OSError):  # only `dralab node --status` reads it
            self._told.write_text(f"{host}:{port}\n", encoding="utf-8")

    def stop(self) -> None:
        """End all streams, and listen no more."""
        self._told.unlink(missing_ok=True)
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._listener.close()

    def publish(self, client: "Client", node: JsonDict) -> None:
        """Publish the CA and the token for the server. ApiError."""
        metadata = node["metadata"]
        data = {
            "ca.crt": read_own(self._certificate.ca),
            "token": self._token.encode(),
        }
        # It goes with its node.
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": metadata["uid"]}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self._node,
                "namespace": SECRETS_OF_NODES,
                "ownerReferences": [owner],
            },
            "type": SECRET_TYPE,
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        client.patch(
            SECRETS,
            self._node,
            body,
            SECRETS_OF_NODES,
            type="apply",
            field_manager="dralab-node",
            force=True,
        )

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._over = asyncio.Event()
            await self._server.start()
            self._started.set()
            await self._over.wait()
            await self._server.stop()

        try:
            asyncio.run(main())
        finally:
            self._started.set()
