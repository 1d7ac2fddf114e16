"""uvicorn's WebSockets; those that are closed and whose client reads nothing are ended."""

from typing import Any, Final

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

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
