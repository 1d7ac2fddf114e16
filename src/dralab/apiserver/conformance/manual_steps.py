"""Changes that were made by hand between the recorded cases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
