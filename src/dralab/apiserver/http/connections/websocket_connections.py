"""uvicorn's WebSockets; those that are closed and whose client reads nothing are ended."""

from functools import lru_cache
from typing import Any, Final

import uvicorn
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from dralab.apiserver.http.connections.asgi_base import AsgiBase
from dralab.apiserver.http.connections.exchanges import ServedConnections
from dralab.apiserver.http.messages import LARGEST_MESSAGE

CLOSE_TIME: Final = 10  # looks, one a second


class LimitedSocket(WSProtocol):
    """A WebSocket; the server looks at it once a second."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._looks = 0  # since it is closed

    def look(self) -> None:
        """End the connection if it was closed long ago and the client has not read that."""
        if self.transport.is_closing():
            self._looks += 1
            if self._looks > CLOSE_TIME:
                self.transport.abort()


def websocket(shared: ServedConnections, state: dict[str, Any]) -> LimitedSocket:
    """Return the protocol of one more WebSocket of a server."""
    return LimitedSocket(config=_config(shared.edge), server_state=shared, app_state=state)


@lru_cache(maxsize=8)
def _config(edge: AsgiBase) -> uvicorn.Config:
    found = uvicorn.Config(
        edge,
        ws=LimitedSocket,
        ws_max_size=LARGEST_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_interval=None,  # kube-apiserver sends none either
        lifespan="off",
        loop="none",
        log_config=None,
        # Any client could say that it is another: what a proxy says is for the audit log.
        proxy_headers=False,
    )
    found.load()
    return found
