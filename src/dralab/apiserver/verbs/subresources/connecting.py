"""Admission of connections: exec, attach and port-forward of pods, and proxies.

What a client asks for in the query becomes an object (`PodExecOptions`), which plugins may refuse.
Source: k8s.io/apiserver `endpoints/handlers/rest.go` (ConnectResource), k8s.io/api `core/v1`.
"""

from typing import Final

from dralab.api.kinds import Kind
from dralab.apiserver.verbs import admission
from dralab.apiserver.verbs.admission import review_of
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.options import Query, WriteOptions
from dralab.values.json_types import JsonDict

FLAGS: Final = ("stdin", "stdout", "stderr", "tty")
CONNECTIONS: Final = frozenset({"exec", "attach", "portforward", "proxy"})
NO: Final = frozenset({"false", "0"})


def admit(
    scope: Scope,
    kind: Kind,
    name: str,
    subresource: str,
    *,
    namespace: str,
    query: Query,
    path: str = "",
) -> None:
    """Call admission for a connection; `path` is that of a proxy. ApiError, MustWait."""
    if subresource not in CONNECTIONS or not (
        scope.context.connecting or scope.context.dynamic.active
    ):
        return
    scope.options = WriteOptions(kind="")  # it has none
    name_of_kind = kind.subresources[subresource].kind
    review = review_of(
        scope,
        kind,
        "CONNECT",
        namespace=namespace,
        name=name,
        subresource=subresource,
        value=options_of(name_of_kind, query, path),
        old=None,
        form=("", "v1", name_of_kind),
    )
    admission.connect(scope, review)


def options_of(kind: str, query: Query, path: str = "") -> JsonDict:
    """Return the object that a query stands for.

    >>> options_of("PodExecOptions", {"stdin": ["1"], "tty": ["0"], "command": ["ls"]})
    {'kind': 'PodExecOptions', 'apiVersion': 'v1', 'stdin': True, 'command': ['ls']}
    """
    found: JsonDict = {"kind": kind, "apiVersion": "v1"}
    if kind.endswith("ProxyOptions"):
        return found | ({"path": path} if path else {})
    if kind == "PodPortForwardOptions":
        ports = [int(each) for each in query.get("ports", ()) if each.isdecimal()]
        return found | ({"ports": ports} if ports else {})
    return found | _streams(query)


def _streams(query: Query) -> JsonDict:
    found: JsonDict = {
        name: True for name in FLAGS if query.get(name) and query[name][0].lower() not in NO
    }
    if query.get("container"):
        found["container"] = query["container"][0]
    if query.get("command"):
        found["command"] = list(query["command"])
    return found
