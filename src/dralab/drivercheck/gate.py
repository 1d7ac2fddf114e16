"""The API server's edge on a bench: it logs the requests of a driver, and injects faults.

Everything that comes over HTTP is the driver's: the bench itself uses a client in the process.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.asgi import AsgiApp, Served
from dralab.apiserver.http.encodings.bodies import decode
from dralab.drivercheck.transcript import Transcript, short

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
SLICES_PATH: Final = "/resourceslices"
CLAIMS_PATH: Final = "/resourceclaims"
UNPROCESSABLE: Final = 422
AGAIN: Final = 4  # refusals after which a driver is taken to have nothing better to say
REASONS: Final = {
    403: "Forbidden",
    409: "Conflict",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(slots=True)
class ApiCall:
    """One request of the driver; `sent` and `answered` are the objects of a write."""

    method: str
    path: str
    query: str = ""
    status: int = 0
    sent: Any = None
    answered: Any = None
    injected: bool = False  # the answer is a fault of the bench

    @property
    def writes(self) -> bool:
        """Whether the request changes something."""
        return self.method in WRITES

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.method} {self.path}{query}"


@dataclass(slots=True)
class ApiFault:
    """A fault of requests: the connection breaks (`cut`), they wait, or get an error."""

    matches: Callable[[ApiCall], bool]
    status: int = 0
    delay: float = 0.0
    cut: bool = False
    times: int = 0  # 0: to all of them
    hits: int = field(default=0)


def every(_call: ApiCall) -> bool:
    """Match every request."""
    return True


def slice_writes(call: ApiCall) -> bool:
    """Match writes of ResourceSlices."""
    return call.writes and SLICES_PATH in call.path


def claim_reads(call: ApiCall) -> bool:
    """Match reads of ResourceClaims."""
    return not call.writes and CLAIMS_PATH in call.path


class Gate(AsgiApp):
    """The application, with a log and faults before it."""

    direct = False  # all requests come through `__call__`

    def __init__(self, served: Served, transcript: Transcript) -> None:
        super().__init__(served)
        self.transcript = transcript
        self._lock = threading.Lock()
        self._calls: list[ApiCall] = []
        self._faults: list[ApiFault] = []
        self._cycles: set[Any] = set()

    # --- what checks use --------------------------------------------------------------------

    @property
    def calls(self) -> list[ApiCall]:
        """The requests of the driver, oldest first; those under way have status 0."""
        with self._lock:
            return list(self._calls)

    def refusal_of_slices(self) -> str:
        """Return the error with which the API repeatedly refuses the driver's slices."""
        calls = [call for call in self.calls if slice_writes(call) and not call.injected]
        refused = [call.answered for call in calls if call.status == UNPROCESSABLE]
        if len(refused) < AGAIN or not isinstance(refused[-1], dict):
            return ""
        return str(refused[-1].get("message", ""))

    @contextmanager
    def fault(self, fault: ApiFault) -> Iterator[ApiFault]:
        """Inject a fault within the block."""
        self.inject(fault)
        try:
            yield fault
        finally:
            self.clear(fault)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Break every connection within the block, as if the server were gone."""
        with self.fault(ApiFault(every, cut=True)):
            self.hang_up()
            yield

    def inject(self, fault: ApiFault) -> None:
        """Inject a fault from now on."""
        with self._lock:
            self._faults.append(fault)

    def clear(self, fault: ApiFault) -> None:
        """Stop injecting a fault."""
        with self._lock:
            if fault in self._faults:
                self._faults.remove(fault)

    def hang_up(self) -> None:
        """Break the connections of all requests under way, which are mostly watches."""
        loop = self.loop
        if loop is None:
            return
        with self._lock:
            transports = list(self._cycles)
        for transport in transports:
            loop.call_soon_threadsafe(transport.abort)

    # --- one request ------------------------------------------------------------------------

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or inject a fault."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        # Without the server's short cut, which would bypass the log.
        scope = {**scope, "extensions": {}}
        call = ApiCall(scope["method"], scope["path"], scope["query_string"].decode())
        # The server's own exchange: ASGI has no word for a broken connection.
        transport = send.__self__.transport
        with self._lock:
            self._calls.append(call)
            self._cycles.add(transport)
        try:
            for fault in self._due(call):
                if fault.delay:
                    await asyncio.sleep(fault.delay)
                if fault.cut:
                    self.transcript.add("API", f"{call} → the connection is broken")
                    transport.abort()
                    while (await receive())["type"] != "http.disconnect":
                        pass  # the rest of a body
                    return
                if fault.status:
                    call.status, call.injected = fault.status, True
                    self.transcript.add("API", f"{call} → {fault.status} (injected)")
                    await _refuse(call, fault.status, send)
                    return
            await self._pass_on(call, scope, receive, send)
        except asyncio.CancelledError:
            # The bench ends, and with it the watches of drivers that were killed.
            self.transcript.add("API", f"{call} is broken off: the server ends")
        finally:
            with self._lock:
                self._cycles.discard(transport)

    def _due(self, call: ApiCall) -> list[ApiFault]:
        with self._lock:
            found = []
            for fault in self._faults:
                if fault.matches(call) and not (fault.times and fault.hits >= fault.times):
                    fault.hits += 1
                    found.append(fault)
            return found

    async def _pass_on(self, call: ApiCall, scope: Any, receive: Any, send: Any) -> None:
        sent, answered = bytearray(), bytearray()
        kind = _content_type(scope["headers"])
        answer_kind = ""

        async def read() -> MutableMapping[str, Any]:
            message: MutableMapping[str, Any] = await receive()
            sent.extend(message.get("body", b""))
            return message

        async def write(message: MutableMapping[str, Any]) -> None:
            nonlocal answer_kind
            if message["type"] == "http.response.start":
                call.status = message["status"]
                answer_kind = _content_type(message["headers"])
                if not call.writes:
                    self.transcript.add("API", f"{call} → {call.status}")
            elif call.writes:
                answered.extend(message.get("body", b""))
                if not message.get("more_body"):
                    call.sent = _object(bytes(sent), kind)
                    call.answered = _object(bytes(answered), answer_kind)
                    self.transcript.add("API", _written(call))
            await send(message)

        if call.writes:
            await super().__call__(scope, read, write)
        else:
            await super().__call__(scope, receive, write)


def _written(call: ApiCall) -> str:
    text = f"{call} {short(call.sent)} → {call.status}"
    if call.status >= 400 and isinstance(call.answered, dict):
        text += f" {call.answered.get('message', '')}"
    return text


def _content_type(headers: Any) -> str:
    return next((v.decode("latin-1") for k, v in headers if k.lower() == b"content-type"), "")


def _object(data: bytes, content_type: str) -> Any:
    """Return the object of a body; None if it is missing or unreadable."""
    if not data:
        return None
    try:
        return decode(data, content_type, "").value
    except ApiError:
        return None


async def _refuse(call: ApiCall, status: int, send: Any) -> None:
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the conformance check lets this request fail",
        "reason": REASONS.get(status, "Unknown"),
        "code": status,
    }
    headers = [(b"content-type", b"application/json")]
    if status == 429:
        body["details"] = {"retryAfterSeconds": 1}
        headers.append((b"retry-after", b"1"))
    if status == 422 and "sendInitialEvents" in call.query:
        # What a server without WatchList answers: clients fall back to LIST and WATCH.
        text = (
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        )
        cause = {"reason": "FieldValueForbidden", "message": text, "field": "sendInitialEvents"}
        body["message"] = (
            f'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: {text}'
        )
        body["details"] = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}
    data = orjson.dumps(body)
    headers.append((b"content-length", str(len(data)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
