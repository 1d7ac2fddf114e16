"""Where the cases are sent: to a server in this process, or to any server over HTTP."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dralab.api.kinds import Kinds
from dralab.api.releases import MIXED
from dralab.api.resource.features import default_of
from dralab.apiserver.access.authentication.chain import Authentication
from dralab.apiserver.access.authentication.tokens import TokenTable
from dralab.apiserver.access.users import User
from dralab.apiserver.http.application import Application
from dralab.apiserver.http.messages import ByteStream, HttpRequest, Proxied, Upgrade, WatchStream
from dralab.apiserver.http.proxying.nodes import NodeProxy
from dralab.apiserver.http.proxying.proxies import Proxies
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.storage.watching import Hub
from dralab.apiserver.verbs.assembly import built_in_admission, new_resources
from dralab.kernel.clock import SECOND, ManualClock, WallClock
from dralab.kernel.http_client import HttpConnections, UnansweredError
from dralab.kernel.randomness import Randomness
from dralab.values.records import dataclass

TOKEN = "tok"
ADMIN = User(name="admin", uid="admin")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: `events` are the lines of a watch, None for everything else."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    events: list[Any] | None = None

    def json(self) -> Any:
        """Return the body as JSON; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request; `meanwhile` is done while its watch is open."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    watches: bool = False
    seconds: float = 0.0
    meanwhile: Callable[[], None] | None = None


class Sender(Protocol):
    """Something that answers."""

    def send(self, question: Question) -> Reply:
        """Return the answer."""
        ...


class InProcess:
    """A fresh server under the conditions of the recording.

    One token, all is allowed, no admission of service accounts, the versions that a server
    of the release serves by itself.
    """

    def __init__(self, release: str = MIXED) -> None:
        store = MemoryStore()
        self.clock = clock = ManualClock(WallClock().now())
        resources = new_resources(
            store,
            clock,
            Randomness(1),
            kinds=Kinds.standard(also=(), release=release),
            features=default_of(release),
            admission=built_in_admission(service_accounts=False, features=default_of(release)),
        )
        self.hub = Hub(store, clock)
        authentication = Authentication(
            tokens=[TokenTable({TOKEN: ADMIN})],
            service_accounts=resources.context.issuer,
            audiences=resources.context.issuer.audiences,
        )
        self.application = Application(resources, authentication=authentication)
        nodes = NodeProxy(resources)
        self.application.requests.connectors.update(nodes.connectors())
        self.application.requests.connectors.update(Proxies(nodes).connectors())

    def send(self, question: Question) -> Reply:
        """Return the answer; a watch has ended when it comes."""
        self.clock.advance(SECOND)
        path, _, query = question.target.partition("?")
        headers = {name.lower(): value for name, value in question.headers.items()}
        answer = self.application.handle(
            HttpRequest(
                method=question.method,
                path=path,
                query=query,
                headers=headers,
                body=question.body,
            )
        )
        if isinstance(answer, (ByteStream, Proxied, Upgrade)):
            # Logs and exec lead out of the server: no file asks for them.
            if not isinstance(answer, Proxied):
                answer.source.close()
            return Reply(501, {}, b"")
        if not isinstance(answer, WatchStream):
            found: dict[str, str] = {}
            for name, value in answer.headers:
                known = found.get(name.lower())
                found[name.lower()] = value if known is None else f"{known}, {value}"
            return Reply(answer.status, found, answer.content)
        watch = self.hub.open(answer.watching, answer.encoder)
        if question.meanwhile is not None:
            question.meanwhile()
        if question.seconds > 2:
            self.hub.bookmark(watch)
        lines: list[bytes] = []
        while items := watch.take_items():
            lines += b"".join(items).splitlines()
        watch.close()
        return Reply(200, dict(answer.headers), b"", [json.loads(line) for line in lines])


class OverHttp:
    """Any server, by its URL."""

    def __init__(self, url: str, *, insecure: bool = False) -> None:
        tls = ssl.create_default_context()
        if insecure:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self._connections = HttpConnections(url, tls=tls)

    def send(self, question: Question) -> Reply:
        """Return the answer; a watch has ended when it comes. OSError."""
        try:
            return self._sent(question)
        except UnansweredError as error:
            raise ConnectionError(str(error)) from error

    def _sent(self, question: Question) -> Reply:
        response = self._connections.open(
            question.method,
            question.target,
            question.headers.items(),
            question.body or None,
            timeout=60,
        )
        try:
            helper = None
            if question.watches and question.meanwhile is not None:
                helper = threading.Thread(target=_later, args=(question.meanwhile,))
                helper.start()
            body = b"".join(response.pieces())
            if helper is not None:
                helper.join()
        finally:
            response.close()
        events = None
        if question.watches and response.status == 200:
            events = _events(body)
        return Reply(response.status, response.headers(), body, events)


def _events(body: bytes) -> list[Any] | None:
    """Return the events of a watch; None if the answer is something else."""
    try:
        found = [json.loads(line) for line in body.splitlines() if line.strip()]
    except ValueError:
        return None
    return found if all("object" in event for event in found) else None


def _later(steps: Callable[[], None]) -> None:
    # The watch has begun when its headers are there; what was there before comes first.
    time.sleep(0.2)  # noqa: TID251 - a real server needs real time
    steps()
