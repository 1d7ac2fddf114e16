"""Receives the requests of programs that are processes, and injects faults into them.

A program finds the server at an address of its own (`/programs/NAME`), so that its requests say
whose they are, whatever client it uses.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import parse_qs, urlencode

from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.users import User
from dralab.apiserver.http.access import attributes_of
from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.messages import (
    Answer,
    ByteStream,
    HttpRequest,
    HttpResponse,
    Proxied,
    WatchStream,
)
from dralab.apiserver.http.resource_requests import watch_error
from dralab.apiserver.http.responses import form_for
from dralab.apiserver.http.trying import refusal
from dralab.apiserver.storage import Compacted
from dralab.runtime.client import Resource
from dralab.testing import history as kinds
from dralab.testing.client import touched
from dralab.testing.faults import PlannedFault
from dralab.testing.history import ProgramRequest
from dralab.testing.refusals import lasting_refusal, lasts, refused_with
from dralab.testing.streams import NotedSpelling, ProgramStream, WatchingProcess
from dralab.testing.surroundings import TrialSurroundings

PLACE: Final = "/programs/"
PROGRAM: Final = "x-dralab-program"
Handler = Callable[[HttpRequest], Answer]


class ProgramEdge(AsgiApp):
    """The server's HTTP, at an address for each program."""

    def admit(self, request: HttpRequest) -> None:
        """Read the program's name from the path. ApiError: the request is refused."""
        if request.path.startswith(PLACE):
            name, _, rest = request.path.removeprefix(PLACE).partition("/")
            request.path = f"/{rest}"
            request.headers = {**request.headers, PROGRAM: name}
        super().admit(request)


class GatedProcess(WatchingProcess, Protocol):
    """A process whose requests arrive here."""

    alive: bool
    listed: set[str]
    """The collections that it has listed since its start."""
    lags: dict[str, int]
    """Until when watches of a collection show nothing, after an old list."""
    streams: list[ProgramStream]

    def die(self, down: int) -> None:
        """End at once, and start again."""
        ...


class GateSurroundings(TrialSurroundings, Protocol):
    """What the gate needs of a trial."""

    def soon_in_server(self, call: Callable[[], object]) -> None:
        """Call something in the server's thread."""
        ...


class FaultyGate:
    """Counts requests, and injects the planned faults."""

    def __init__(
        self, around: GateSurroundings, processes: Mapping[str, GatedProcess], handle: Handler
    ) -> None:
        self._around = around
        self._processes = processes
        self._handle = handle

    def handle(self, request: HttpRequest) -> Answer:
        """Answer a request."""
        request.lane = ""
        process = self._processes.get(request.headers.get(PROGRAM, ""))
        if process is None:
            return self._handle(request)
        kinds_of_server = self._around.server.resources.kinds
        asked = attributes_of(request, kinds_of_server, request.user or User())
        if not asked.resource:
            return self._handle(request)
        return _GatedRequest(self._around, process, self._handle, request, _named(asked)).answer()


class _GatedRequest:
    """One request of a program, with its fault."""

    def __init__(
        self,
        around: GateSurroundings,
        process: GatedProcess,
        handle: Handler,
        request: HttpRequest,
        told: ProgramRequest,
    ) -> None:
        self.around = around
        self.process = process
        self.handle = handle
        self.request = request
        self.told = told

    def answer(self) -> Answer:
        """Answer it, with its planned fault."""
        around, told, plan = self.around, self.told, self.around.plan
        if not self.process.alive:
            # Sent before it was killed, read after it: whether it arrives must not be chance.
            return refusal(refused_with(503))
        fault = plan.at_request(self.process.program, told.verb, told.plural)
        if fault is not None:
            around.history.add(self.process.name, kinds.FAULT, fault.text)
            plan.disturb(self.now + fault.duration)
            if lasts(fault):
                plan.begin(fault, self.now)
        if fault is None or fault.fault != "kill":
            lasting = self.refused_by()
            if lasting is not None:
                return self.refused(lasting_refusal(lasting))
        if told.verb == "list":
            self._make_old()
        if fault is None:
            return self.do()
        match fault.fault:
            case "refuse":
                return self.refused(refused_with(fault.code))
            case "slow":
                return Proxied(ask=partial(self._slowly, fault.duration))
            case "conflict":
                with touched(around, told, self.process.program):
                    return self.do()
            case "late-write":
                self._later(fault.duration)
            case "kill":
                self._kill(fault)
            case _:
                self.do()
        # A server that answers so has perhaps done what was asked.
        return self.refused(refused_with(504))

    @property
    def now(self) -> int:
        return self.around.engine.clock.now()

    def refused_by(self) -> PlannedFault | None:
        """Return the fault that refuses it now."""
        told = self.told
        return self.around.plan.refusal(self.process.program, told.verb, told.plural, self.now)

    def do(self) -> HttpResponse | ByteStream:
        """Carry out the request."""
        around, told = self.around, self.told
        if told.verb == "watch" and told.plural in self.process.expired:
            self.process.expired.discard(told.plural)
            if parse_qs(self.request.query).get("resourceVersion", ["0"]) not in (["0"], [""]):
                return self._too_old()
        before = around.server.store.revision
        answer = self.handle(self.request)
        after = around.server.store.revision
        if isinstance(answer, WatchStream):
            answer = self._opened(answer)
        status = getattr(answer, "status", 200)
        what = kinds.WRITE if told.writes else kinds.REQUEST
        text = f"{told} -> {status}" if status >= 400 else str(told)
        if status >= 400:
            around.refused(self.process.program, str(told), status)
        else:
            around.answered(self.process.program, str(told))
        revision, code = after if after > before else 0, status if status >= 400 else 0
        if told.writes and revision:
            around.plan.committed(self.process.program, told.verb, told.plural, revision)
        around.history.add(self.process.name, what, text, revision, request=told, code=code)
        return answer  # type: ignore[return-value]  # of resources, nothing else is answered here

    def _opened(self, stream: WatchStream) -> HttpResponse | ByteStream:
        around, plural = self.around, self.told.plural
        spelling = NotedSpelling(stream.encoder, plural)
        try:
            inner = around.server.hub.open(stream.watching, spelling)
        except Compacted as error:
            text = f"too old resource version: {error.requested} ({error.compacted})"
            return refusal(ApiError("Expired", text))
        lag = self.process.lags.pop(plural, 0)
        source = ProgramStream(around, self.process, inner, plural, lag)
        self.process.streams.append(source)
        return ByteStream(source=source, status=stream.status, headers=stream.headers)

    def _too_old(self) -> HttpResponse:
        told, resources = self.told, self.around.server.resources
        where = told.resource
        kind = resources.kind(where.group, where.version, where.plural)
        form = form_for(self.request, kind, listing=True)
        text = f"{told} -> 410 Expired"
        self.around.history.add(self.process.name, kinds.REQUEST, text, request=told, code=410)
        return watch_error(form, ApiError("Expired", "too old resource version"))

    async def _slowly(self, duration: int) -> HttpResponse | ByteStream:
        import asyncio

        waited = asyncio.Event()
        around = self.around
        around.engine.after(duration, lambda: around.soon_in_server(waited.set))
        await waited.wait()
        lasting = self.refused_by()
        return self.do() if lasting is None else self.refused(lasting_refusal(lasting))

    def _later(self, delay: int) -> None:
        def arrive() -> None:
            self.do()

        self.around.engine.after(delay, arrive)

    def _kill(self, fault: PlannedFault) -> None:
        if self.refused_by() is not None:
            pass  # it does not reach the server
        elif fault.moment == "during":
            self._later(fault.duration)
        elif fault.moment == "after":
            self.do()
        text = f"is killed {fault.moment} {self.told}"
        self.around.history.add(self.process.name, kinds.LIFE, text)
        self.process.die(fault.duration)

    def refused(self, error: ApiError) -> HttpResponse:
        """Answer with an error, and note it."""
        what = kinds.WRITE if self.told.writes else kinds.REQUEST
        text = f"{self.told} -> {error.code} {error.reason}"
        history, name = self.around.history, self.process.name
        history.add(name, what, text, request=self.told, code=error.code)
        self.around.refused(self.process.program, str(self.told), error.code)
        return refusal(error)

    def _make_old(self) -> None:
        """Let the first list with resourceVersion=0 be one from a cache that lags behind."""
        around, process, told = self.around, self.process, self.told
        query = parse_qs(self.request.query)
        if query.get("resourceVersion") != ["0"] or told.plural in process.listed:
            return
        process.listed.add(told.plural)
        old = around.plan.at_first_list(process.program, told.plural)
        revision = around.revision_of(told.resource, old) if old else 0
        if old is None or revision < 1:
            return
        query |= {"resourceVersion": [str(revision)], "resourceVersionMatch": ["Exact"]}
        query.pop("limit", None)
        self.request.query = urlencode(query, doseq=True)
        process.lags[told.plural] = self.now + old.duration
        around.history.add(process.name, kinds.FAULT, old.text, revision)


def _named(asked: Attributes) -> ProgramRequest:
    verb = f"{asked.verb}/{asked.subresource}" if asked.subresource else asked.verb
    resource = Resource(asked.group, asked.version, asked.resource, bool(asked.namespace))
    return ProgramRequest(verb, resource, asked.namespace, asked.name)
