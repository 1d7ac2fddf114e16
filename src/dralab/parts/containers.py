"""The way from the server to the containers of a cluster's nodes: logs, and commands in them."""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.application import TEXT, query_of
from dralab.apiserver.http.feeds import Feed
from dralab.apiserver.http.messages import Answer, ByteStream, HttpRequest, HttpResponse, Upgrade
from dralab.apiserver.http.routing import Route
from dralab.apiserver.resources.options import Query, User
from dralab.apiserver.server import ApiServer
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.node.containers import Session, StartError
from dralab.node.logs import Log, shown
from dralab.node.running import Running

if TYPE_CHECKING:
    from dralab.node.kubelets import Kubelets
    from dralab.runtime.client import Object


def connect(server: ApiServer, kubelets: "Kubelets") -> None:
    """Let a server answer for the logs of the pods on these nodes."""
    application = server.application
    before = application.connectors["pods", "log"]

    def logs(request: HttpRequest, route: Route, user: User) -> Answer:
        pod = server.resources.get(route.kind, route.name, route.namespace).value
        node = pod["spec"].get("nodeName")
        if not node or node not in kubelets.nodes:
            return before(request, route, user)
        query = query_of(request.query)
        return _answer(_log(kubelets, pod, query), query, kubelets.manager.engine.clock.now())

    def execute(request: HttpRequest, route: Route, user: User) -> Answer:
        del user
        if not same_origin(request.headers):
            raise ApiError("Forbidden", "pages of other servers may not run commands", code=403)
        pod = server.resources.get(route.kind, route.name, route.namespace).value
        query = query_of(request.query)
        argv = list(query.get("command") or ())
        if not argv:
            raise ApiError.bad_request("you must specify at least one command for the container")
        if pod["spec"].get("nodeName") not in kubelets.nodes:
            raise ApiError.bad_request(f"pod {route.name} does not have a host assigned")
        name = _container(pod, query)
        session = Session(stdin=_one(query, "stdin") == "true", tty=_one(query, "tty") == "true")
        return _exec(kubelets.find(pod, name), argv, request, session)

    application.connectors["pods", "log"] = logs
    application.connectors["pods", "exec"] = execute


def same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether a WebSocket is not asked for by a web page of somewhere else.

    Browsers let any page open one to this machine, and say in `Origin` which page it is.

    >>> same_origin({"host": "127.0.0.1:55441", "origin": "https://example.com"})
    False
    """
    origin = headers.get("origin")
    return not origin or urlsplit(origin).netloc == headers.get("host")


def _container(pod: "Object", query: Query) -> str:
    """Return the container that a request is about."""
    names = [
        each["name"]
        for key in ("containers", "initContainers")
        for each in pod["spec"].get(key) or ()
    ]
    name, pod_name = _one(query, "container"), pod["metadata"]["name"]
    if not name:
        mains = [each["name"] for each in pod["spec"]["containers"]]
        if len(names) > 1:
            inits = names[len(mains) :]
            choices = f"choose one of: [{' '.join(mains)}]"
            if inits:
                choices += f" or one of the init containers: [{' '.join(inits)}]"
            raise ApiError.bad_request(
                f"a container name must be specified for pod {pod_name}, {choices}"
            )
        name = mains[0]
    if name not in names:
        raise ApiError.bad_request(f"container {name} is not valid for pod {pod_name}")
    return name


def _log(kubelets: "Kubelets", pod: "Object", query: Query) -> Log:
    name, pod_name = _container(pod, query), pod["metadata"]["name"]
    run = kubelets.find(pod, name)
    if _one(query, "previous") == "true":
        if run is None or run.previous is None:
            raise ApiError.bad_request(
                f'previous terminated container "{name}" in pod "{pod_name}" not found'
            )
        return run.previous
    if run is None or run.number == 0:
        waiting = run.waiting if run is not None else "ContainerCreating"
        raise ApiError.bad_request(
            f'container "{name}" in pod "{pod_name}" is waiting to start: {waiting}'
        )
    return run.log


def _answer(log: Log, query: Query, now: int) -> Answer:
    since = 0
    if seconds := _one(query, "sinceSeconds"):
        since = now - int(seconds) * SECOND
    elif time := _one(query, "sinceTime"):
        since = from_rfc3339(time)
    stamps = _one(query, "timestamps") == "true"
    lines, there = log.read()
    lines = [entry for entry in lines if entry[0] >= since]
    if tail := _one(query, "tailLines"):
        lines = lines[-int(tail) :] if int(tail) > 0 else []
    first = b"".join(shown(entry, timestamps=stamps) for entry in lines)
    if limit := _one(query, "limitBytes"):
        first = first[: int(limit)]
    if _one(query, "follow") != "true":
        return HttpResponse(headers=TEXT, body=first)

    forget: list[Callable[[], None]] = []

    def closed() -> None:
        for each in forget:
            each()

    feed = Feed(on_close=closed)
    position = there
    turn = threading.Lock()

    def more() -> None:
        nonlocal position
        with turn:
            ended = log.ended
            found, position = log.read(position)
            if found:
                feed.put(b"".join(shown(entry, timestamps=stamps) for entry in found))
            if ended:
                feed.end()

    if first:
        feed.put(first)
    forget.append(log.listen(more))
    more()
    return ByteStream(headers=TEXT, source=feed)


# Channels of v4 and v5: the first byte of each message. The last says that one is closed.
STDIN, STATUS, RESIZE, CLOSE = 0, 3, 4, 255
PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")


def _exec(
    run: Running | None, argv: Sequence[str], request: HttpRequest, session: Session
) -> Answer:
    offered = [
        each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(",")
    ]
    protocol = next((each for each in PROTOCOLS if each in offered), "")
    if not protocol:
        raise ApiError.bad_request(
            f"commands run over WebSockets that speak {' or '.join(PROTOCOLS)}"
        )
    if run is None or run.container is None:
        raise ApiError("InternalError", "Internal error occurred: container not found", code=500)
    feed, container = Feed(on_close=session.leave), run.container

    def output(channel: int, data: bytes) -> None:
        if not feed.put(bytes([channel]) + data):
            session.leave()

    def receive(message: bytes) -> None:
        if not message:
            return
        if message[0] == STDIN and len(message) > 1:
            session.typed(message[1:])
        elif message[0] == CLOSE and message[1:2] == bytes([STDIN]):
            session.typed(None)
        elif message[0] == RESIZE:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                size = orjson.loads(message[1:])
                session.resize(int(size["Width"]), int(size["Height"]))

    def work() -> None:
        status: dict[str, object] = {"metadata": {}, "status": "Success"}
        try:
            code = container.run(argv, output, session)
            if code:
                status = {
                    "metadata": {},
                    "status": "Failure",
                    "reason": "NonZeroExitCode",
                    "message": f"command terminated with non-zero exit code: exit status {code}",
                    "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
                }
        except StartError as error:
            message = f"Internal error occurred: {error}"
            status = ApiError("InternalError", message, code=500).status()
        feed.put(bytes([STATUS]) + orjson.dumps(status))
        feed.end()

    threading.Thread(target=work, name="exec", daemon=True).start()
    return Upgrade(source=feed, receive=receive, protocol=protocol)


def _one(query: Query, name: str) -> str:
    found = query.get(name)
    return found[0] if found else ""
