"""Streams from a node's pods: logs, exec and attach."""

import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.byte_feeds import Feed
from dralab.apiserver.http.messages import Answer, ByteStream, HttpResponse, Upgrade
from dralab.apiserver.http.proxying.nodes import NodeRequest, chosen, connected
from dralab.apiserver.http.responses import TEXT
from dralab.apiserver.verbs.state.options import Query
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import (
    Attachable,
    ContainerRuntime,
    ContainerStartError,
    ExecSession,
)
from dralab.node.forwarding import forwarded
from dralab.node.log_files import RuntimeWithLogFiles
from dralab.node.logs import ContainerLog, shown
from dralab.objects.metadata import NamespacedName, status_of, uid_of
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.node.kubelet import Kubelet
    from dralab.node.kubelets import Kubelets
    from dralab.node.pods import PodLife

# Channels of v4 and v5: the first byte of each message.
STDIN, STDOUT, STATUS, RESIZE = 0, 1, 3, 4
# v5: that channel 0 is closed.
CLOSED_STDIN: Final = bytes([255, STDIN])
CLOSING: Final = frozenset({"v5.channel.k8s.io"})
# The oldest says nothing of a command that was good, and of others in plain words.
OLDEST: Final = "channel.k8s.io"
PROTOCOLS: Final = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    OLDEST,
    "base64.channel.k8s.io",
)
SUCCESS: Final[dict[str, object]] = {"metadata": {}, "status": "Success"}


class PodStreams:
    """Answers for the pods of some nodes, as `apiserver.http.proxying.nodes.LocalNodes`."""

    def __init__(self, kubelets: "Kubelets") -> None:
        self.kubelets = kubelets

    def answer(self, node: str, wanted: NodeRequest) -> Answer | None:
        """Answer for a pod of a node; None if it is not one of these. ApiError."""
        kubelet = self.kubelets.nodes.get(node)
        if kubelet is None:
            return None
        pod = self.kubelets.pods.get(NamespacedName(wanted.namespace, wanted.pod))
        life = kubelet.pods.get(uid_of(pod)) if pod is not None else None
        query = wanted.query
        if wanted.verb == "portForward":
            return _forward(life, kubelet, wanted)
        run = life.container(wanted.container) if life is not None else None
        if wanted.verb == "containerLogs":
            log = _log(pod, run, wanted, kubelet.runtime)
            return _logs(log, query, self.kubelets.manager.engine.clock.now())
        protocol = chosen(wanted, PROTOCOLS)
        if run is None or run.container is None:
            raise ApiError(
                "InternalError", "Internal error occurred: container not found", code=500
            )
        if wanted.verb == "attach":
            session = ExecSession(stdin=_true(query, "stdin"))
            return connected(protocol, partial(_attach, run, session))
        session = ExecSession(stdin=_true(query, "stdin"), tty=_true(query, "tty"))
        argv = list(query.get("command") or ())
        return connected(protocol, partial(_exec, run, argv, session))


# --- logs ---------------------------------------------------------------------------------------


def _log(
    pod: JsonDict | None,
    run: RunningContainer | None,
    wanted: NodeRequest,
    runtime: ContainerRuntime,
) -> ContainerLog:
    """Return what a container has written, also before the node's process began. ApiError."""
    previous, began = _true(wanted.query, "previous"), run is not None and run.number > 0
    found = (run.previous if previous else run.log if began else None) if run is not None else None
    of_earlier_life = found is None or (found.ended and not found.read()[0])
    if of_earlier_life and pod is not None and isinstance(runtime, RuntimeWithLogFiles):
        found = runtime.kept(uid_of(pod), wanted.container, previous=previous) or found
    if found is not None:
        return found
    container = f'container "{wanted.container}" in pod "{wanted.pod}"'
    if previous:
        raise ApiError.bad_request(f"previous terminated {container} not found")
    if run is None and pod is not None and is_finished(pod):
        raise ApiError.bad_request(f"{container} ended before its node started: its log is lost")
    waiting = run.waiting if run is not None else "ContainerCreating"
    raise ApiError.bad_request(f"{container} is waiting to start: {waiting}")


def _logs(log: ContainerLog, query: Query, now: int) -> Answer:
    since = 0
    if seconds := _number(query, "sinceSeconds"):
        since = now - seconds * SECOND
    elif time := _one(query, "sinceTime"):
        try:
            since = from_rfc3339(time)
        except ValueError as error:
            raise ApiError.bad_request(f"sinceTime: {error}") from None
    stamps = _true(query, "timestamps")
    lines, there = log.read()
    lines = [entry for entry in lines if entry[0] >= since]
    tail = _number(query, "tailLines")
    if tail is not None:
        lines = lines[-tail:] if tail > 0 else []
    first = b"".join(shown(entry, timestamps=stamps) for entry in lines)
    limit = _number(query, "limitBytes")
    if limit is not None:
        first = first[:limit]
    if not _true(query, "follow"):
        return HttpResponse(headers=TEXT, body=first)
    end = _End()
    feed = Feed(on_close=end)
    if first:
        feed.put(first)
    end.add_callback(
        _follow(
            log,
            there,
            lambda found: feed.put(b"".join(shown(entry, timestamps=stamps) for entry in found)),
            feed.end,
        )
    )
    return ByteStream(headers=TEXT, source=feed)


def _follow(
    log: ContainerLog,
    position: int,
    put: Callable[[list[tuple[int, str]]], object],
    end: Callable[[], None],
) -> Callable[[], None]:
    """Forward a log's lines after `position`, and its end; returns how to stop."""
    turn, over = threading.Lock(), False

    def more() -> None:
        nonlocal position, over
        with turn:
            ended = log.ended
            found, position = log.read(position)
            if found:
                put(found)
            if ended and not over:
                over = True
                end()

    stop = log.listen(more)
    more()
    return stop


class _End:
    """Callbacks at the end of a feed, even if it has ended already."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._calls: list[Callable[[], None]] = []

    def add_callback(self, call: Callable[[], None]) -> None:
        """Call a function at the end."""
        with self._lock:
            over = self._over
            self._calls.append(call)
        if over:
            call()

    def __call__(self) -> None:
        with self._lock:
            self._over, calls = True, list(self._calls)
        for call in calls:
            call()


# --- attach and exec --------------------------------------------------------------------------


def _attach(run: RunningContainer, session: ExecSession, protocol: str) -> Upgrade:
    """Show a container's output from now on; the session ends with the container."""
    log, end = run.log, _End()
    running: object = run.container
    container = running if isinstance(running, Attachable) else None

    def leave() -> None:
        session.leave()
        end()

    feed = Feed(on_close=leave)

    def output(channel: int, data: bytes) -> None:
        feed.put(bytes([channel]) + data)

    def lines(found: list[tuple[int, str]]) -> None:
        if container is None:
            output(STDOUT, b"".join(shown(entry, timestamps=False) for entry in found))

    def over() -> None:
        _conclude(feed, SUCCESS, protocol)

    if container is not None:
        end.add_callback(container.attach(output, session))
    else:  # what is typed goes nowhere
        session.connect(lambda _: None, lambda *_: None, lambda: None)
    end.add_callback(_follow(log, log.read()[1], lines, over))
    return Upgrade(source=feed, receive=_receiver(session, protocol), protocol=protocol)


def _receiver(session: ExecSession, protocol: str) -> Callable[[bytes], Awaitable[None] | None]:
    """Return the handler of a client's messages: input, its end, terminal sizes."""

    def receive(message: bytes) -> Awaitable[None] | None:
        if not message:
            return None
        if message[0] == STDIN and len(message) > 1:
            session.typed(message[1:])
        elif message == CLOSED_STDIN and protocol in CLOSING:
            session.typed(None)
        elif message[0] == RESIZE:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                size = orjson.loads(message[1:])
                session.resize(int(size["Width"]), int(size["Height"]))
        return session.room()

    return receive


def _exec(
    run: RunningContainer, argv: Sequence[str], session: ExecSession, protocol: str
) -> Upgrade:
    container = run.container
    feed = Feed(on_close=session.leave)

    def output(channel: int, data: bytes) -> None:
        feed.offer(bytes([channel]) + data)  # nobody reads it where the client is gone

    def work() -> None:
        status = SUCCESS
        try:
            code = container.run(argv, output, session) if container is not None else 0
            if code:
                status = {
                    "metadata": {},
                    "status": "Failure",
                    "reason": "NonZeroExitCode",
                    "message": f"command terminated with non-zero exit code: exit status {code}",
                    "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
                }
        except ContainerStartError as error:
            message = f"Internal error occurred: {error}"
            status = ApiError("InternalError", message, code=500).status()
        _conclude(feed, status, protocol)

    threading.Thread(target=work, name="exec", daemon=True).start()
    return Upgrade(source=feed, receive=_receiver(session, protocol), protocol=protocol)


def _conclude(feed: Feed, status: Mapping[str, object], protocol: str) -> None:
    """Report how a command ended, and end its session."""
    if protocol != OLDEST:
        feed.put(bytes([STATUS]) + orjson.dumps(status))
    elif status is not SUCCESS:
        feed.put(bytes([STATUS]) + str(status["message"]).encode())
    feed.end()


# --- ports --------------------------------------------------------------------------------------


def _forward(life: "PodLife | None", kubelet: "Kubelet", wanted: NodeRequest) -> Answer:
    if life is None or not any(each.alive for each in life.mains):
        phase = status_of(life.pod).get("phase") if life is not None else "Pending"
        raise ApiError.bad_request(
            f"unable to forward port because pod is not running. Current status={phase}"
        )
    host = kubelet.runtime.ports_at
    if not host:
        raise ApiError.bad_request(
            f"pod {wanted.pod} has no ports: the simulated runtime runs no processes; use "
            f"`--runtime process`"
        )
    uid, runtime = uid_of(life.pod), kubelet.runtime
    declared = {
        port["containerPort"]
        for container in life.pod["spec"]["containers"]
        for port in container.get("ports") or ()
    }

    sandbox = life.sandbox

    def owns(port: int) -> bool:
        if sandbox is not None and sandbox.has_own_network:
            return True
        found = runtime.listens(uid, port)
        return port in declared if found is None else found

    if sandbox is None or sandbox.namespaces is None:
        return forwarded(wanted, host, owns)
    return forwarded(wanted, host, owns, sandbox.namespaces.socket)


def _one(query: Query, name: str) -> str:
    found = query.get(name)
    return found[0] if found else ""


def _true(query: Query, name: str) -> bool:
    return _one(query, name) in {"true", "1", "True", "t", "T", "TRUE"}


def _number(query: Query, name: str) -> int | None:
    text = _one(query, name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ApiError.bad_request(f'{name}: "{text}" is not a whole number') from None
