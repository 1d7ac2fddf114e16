"""Replays a recording, case by case, and reports differences."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from dralab.apiserver.conformance.comparison import Correspondence, differences, same_text
from dralab.apiserver.conformance.senders import TOKEN, Question, Reply, Sender
from dralab.values.records import dataclass

MAPS: Final = "/api/v1/namespaces/default/configmaps"
PODS: Final = "/api/v1/namespaces/default/pods"
MERGE: Final = "application/merge-patch+json"
CREATED_BY: Final = "?fieldManager=kubectl-create"


@dataclass(frozen=True, slots=True)
class Step:
    """One request that was not recorded."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"


def _map(name: str, *, query: str = "", data: Any = None, **metadata: Any) -> Step:
    body: dict[str, Any] = {"metadata": {"name": name, **metadata}}
    if data is not None:
        body["data"] = data
    return Step("POST", MAPS + query, body)


def _change(name: str, **parts: Any) -> Step:
    return Step("PATCH", f"{MAPS}/{name}", parts, MERGE)


def _delete(name: str) -> Step:
    return Step("DELETE", f"{MAPS}/{name}")


def _pod(**spec: Any) -> Step:
    containers = [{"name": "c", "image": "i"}]
    return Step(
        "POST", PODS, {"metadata": {"name": "pp"}, "spec": {"containers": containers, **spec}}
    )


_ONE_LIFE: Final = (_map("cm1", query=CREATED_BY, data={"a": "b"}), _delete("cm1"))

# Done once, before the first case of that name.
BEFORE: Final[Mapping[str, Sequence[Step]]] = {
    "version": (
        Step(
            "POST",
            "/api/v1/namespaces/default/serviceaccounts",
            {"metadata": {"name": "default"}},
        ),
        *_ONE_LIFE,
        *_ONE_LIFE,
    ),
    "limit=2": [_map(f"c{number}", data={"v": str(number)}) for number in range(4)],
    "delete with finalizer": [_map("fin", finalizers=["x.io/y"])],
    "watch selector enter, change, leave, re-enter, delete": [_map("tr")],
    "watch with finalizer delete": [_map("wf", labels={"f": "1"}, finalizers=["x.io/a"])],
    "Table watch": [_map("tw", labels={"w": "1"})],
    "delete orphan": [_map("o1"), _map("o2")],
    "unscheduled pod deleted at once": [_pod()],
    "scheduled pod default grace": [_pod(nodeName="n1")],
}
# Done while the watch of that name is open.
DURING: Final[Mapping[str, Sequence[Step]]] = {
    "watch selector enter, change, leave, re-enter, delete": (
        _change("tr", metadata={"labels": {"t": "1"}}),
        _change("tr", data={"a": "1"}),
        _change("tr", metadata={"labels": {"t": "2"}}),
        _change("tr", metadata={"labels": {"t": "1"}}),
        _delete("tr"),
    ),
    "WatchList then live": (_map("tr2", labels={"t": "1"}), _delete("tr2")),
    "watch with finalizer delete": (
        _delete("wf"),
        _change("wf", metadata={"finalizers": None}),
    ),
    "Table watch": [_change("tw", data={"a": "1"})],
}
# The request that carries no good token.
STRANGERS: Final = frozenset({"unauth"})


Case = Mapping[str, Any]
# Cases that this server answers differently, and why: docs/decisions/api-differences.md.
ON_PURPOSE: Final[Mapping[str, str]] = {
    "pod immut": "the message has no dump of internal Go structs",
    "openapi v2 json": "the document lists the paths that this server serves",
    "GET /readyz?verbose": "the checks are in the order of another real server",
}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case: `problems` is empty if it passed."""

    number: int
    name: str
    problems: Sequence[str]

    @property
    def on_purpose(self) -> str:
        """Why the case is different on purpose; empty if it is not."""
        return ON_PURPOSE.get(self.name, "")


class RecordingError(ValueError):
    """A file that is not a recording."""


def cases_of(content: Any) -> list[Case]:
    """Return the cases of a recording; RecordingError if the file is not one."""
    cases = content.get("cases") if isinstance(content, dict) else None
    if not isinstance(cases, list):
        raise RecordingError('want {"cases": [...]}')
    for number, case in enumerate(cases):
        missing = [
            part
            for part in ("case", "path", "status")
            if not isinstance(case, dict) or part not in case
        ]
        if missing:
            raise RecordingError(f"case {number}: {', '.join(missing)} missing")
    return cases


class Replay:
    """One run over one server, which must be fresh."""

    def __init__(self, sender: Sender, *, token: str = TOKEN) -> None:
        self.sender = sender
        self.token = token
        self.same = Correspondence()
        self._done: set[str] = set()

    def run(self, cases: Sequence[Case]) -> Iterator[CaseResult]:
        """Yield the outcome of each case, in order."""
        for number, case in enumerate(cases):
            name = case["case"]
            if name not in self._done:
                self._done.add(name)
                self._steps(BEFORE.get(name, ()))
            reply = self.sender.send(self._question(case))
            yield CaseResult(number, name, list(self._problems(case, reply)))

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            body = b"" if step.body is None else json.dumps(step.body).encode()
            headers = {
                "Authorization": f"Bearer {self.token}",
                "Content-Type": step.content_type,
            }
            self.sender.send(
                Question(method=step.method, target=step.path, headers=headers, body=body)
            )

    def _question(self, case: Case) -> Question:
        body = case.get("body")
        data = b""
        if body is not None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        token = "nobody" if case["case"] in STRANGERS else self.token
        headers = {"Authorization": f"Bearer {token}"}
        if accept := case.get("accept"):
            headers["Accept"] = accept
        if body is not None:
            headers["Content-Type"] = case.get("contentType", "application/json")
        target = self._target(case["path"])
        query = parse_qs(urlsplit(target).query)
        meanwhile = DURING.get(case["case"])
        return Question(
            method=case.get("method", "POST"),
            target=target,
            headers=headers,
            body=data,
            watches="watch" in query or "/watch/" in target,
            seconds=float(query.get("timeoutSeconds", ["0"])[0]),
            meanwhile=None if meanwhile is None else lambda: self._steps(meanwhile),
        )

    def _target(self, path: str) -> str:
        """Return the path with the revisions, names and tokens of this run."""
        for there, known in self.same.tokens.items():
            path = path.replace(there, known)
        before, mark, rest = path.partition("resourceVersion=")
        if mark:
            number = rest.partition("&")[0]
            here = self.same.revisions.get(number)
            if here is None and number.isdigit() and 100 <= int(number) < 10**6:
                here = self._current()
            if here is not None:
                rest = here + rest.removeprefix(number)
            path = before + mark + rest
        return path.replace(" ", "%20")

    def _current(self) -> str:
        """Return the current revision."""
        target = "/api/v1/namespaces?limit=1"
        headers = {"Authorization": f"Bearer {self.token}"}
        reply = self.sender.send(Question(method="GET", target=target, headers=headers))
        found: str = reply.json()["metadata"]["resourceVersion"]
        return found

    def _problems(self, case: Case, reply: Reply) -> Iterator[str]:
        if reply.status != case["status"]:
            yield f"status {case['status']} was recorded, this is {reply.status}"
        for name, value in (case.get("headers") or {}).items():
            here = reply.headers.get(name.lower())
            if here is None or value not in {"present", here}:
                yield f"header {name}: {value!r} was recorded, this is {here!r}"
        if (text := case.get("text")) is not None:
            shown = reply.body.decode("utf-8", errors="replace")
            if not same_text(text, shown):
                yield f"{text[:200]!r} was recorded, this is {shown[:200]!r}"
        there = case.get("answer")
        events = case.get("events")
        if events is not None or reply.events is not None:
            wanted = events if events is not None else [] if there is None else [there]
            yield from differences(wanted, reply.events or [], self.same, "events")
        elif there is not None and there != "(long)":
            yield from differences(there, reply.json(), self.same)
