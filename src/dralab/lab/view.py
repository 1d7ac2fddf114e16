"""A cluster to query: `dralab.open` reads it once, and the answers are those of the commands."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol

from dralab.allocation.policy.policies import POLICIES
from dralab.api.yaml_documents import YamlError, single
from dralab.capacity.changes import (
    AddNodes,
    Cordon,
    RemoveNode,
    SupposedChange,
    Uncordon,
    UnknownName,
    patched,
)
from dralab.capacity.defragment import defragment
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.planning import HIGHEST_PRICE, is_price, plan
from dralab.capacity.structured import structured_moves, structured_plan, structured_what_if
from dralab.capacity.what_if import what_if
from dralab.explanation.answers import NoResult, already_allocated, answers, placed_on
from dralab.explanation.why import why
from dralab.files.reading import read
from dralab.fleet import rendering, shapes
from dralab.kernel.clock import WallClock
from dralab.lab import arguments
from dralab.lab.answers import (
    AllocationAnswer,
    ColumnTable,
    ExplanationAnswer,
    MovesAnswer,
    PlanAnswer,
    WhatIfAnswer,
    explanation,
)
from dralab.lab.inventory import checked_manifests, lacking, merged
from dralab.objects.metadata import NamespacedName
from dralab.runtime.client import Client
from dralab.runtime.kubeconfig import KubeconfigError
from dralab.runtime.kubeconfig import read as read_kubeconfig
from dralab.runtime.reading import ReadingError, read_cluster
from dralab.runtime.remote import RemoteClient
from dralab.scheduling.backlog import Pending
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict

LARGEST_KUBECONFIG: Final = 1 << 20
MOST_SHOWN: Final = 10


class WithClient(Protocol):
    """A cluster of this process: `Cluster` while it runs, or `SimulatedCluster`."""

    @property
    def client(self) -> Client:
        """What reads it."""
        ...


Source = str | PathLike[str] | WithClient | Iterable[JsonDict] | Mapping[str, int] | JsonDict


class BadInput(ValueError):  # noqa: N818 - it says what it is about
    """Objects that cannot be used; `problems` names each with file, line and field."""

    def __init__(self, problems: Sequence[str]) -> None:
        shown = list(problems[:MOST_SHOWN])
        if len(problems) > MOST_SHOWN:
            shown.append(f"and {len(problems) - MOST_SHOWN} more")
        super().__init__("\n".join(shown))
        self.problems = problems


class UnknownObject(KeyError):  # noqa: N818 - it says what it is about
    """An unknown name; the message lists the known ones."""

    def __str__(self) -> str:
        return str(self.args[0])


def open(*sources: Source) -> "Lab":  # noqa: A001 - dralab.open, as gzip.open
    """Return a cluster as it is now, to ask about.

    A source is a manifest, a directory or archive of manifests, a snapshot, a kubeconfig, a running
    `Cluster` or `SimulatedCluster`, an object or a list of them as mappings, or a fleet to
    generate, such as `{"h100": 8}` (shapes of `dralab generate`). Files after a cluster count as
    applied to it. Nothing is ever written to a cluster. BadInput: what is wrong with the input.
    UnknownObject.
    """
    objects: list[JsonDict] = []
    not_judged: list[str] = []
    for source in sources:
        objects = merged(objects, _objects_of(source, not_judged))
    if not objects:
        raise BadInput(["nothing to read: give files, a kubeconfig, a cluster or objects"])
    if missing := lacking(objects):
        raise BadInput([missing])
    return Lab(objects, not_judged)


def _objects_of(source: Source, not_judged: list[str]) -> list[JsonDict]:
    if isinstance(source, (str, PathLike)):
        if not str(source):
            raise BadInput(["the name of a file is empty; '.' is the current directory"])
        path = Path(source)
        if _is_kubeconfig(path):
            return _of_cluster(_remote(path), not_judged)
        return _of_files([str(path)])
    client = getattr(source, "client", None)
    if client is not None:
        return _of_cluster(client, not_judged)
    if isinstance(source, Mapping):
        return _checked([source]) if "kind" in source else _generated(source)
    if isinstance(source, Iterable):
        return _checked(list(source))
    raise TypeError(f"{source!r} is not a path, a cluster, a fleet, an object or a list of objects")


def _checked(objects: Sequence[Any]) -> list[JsonDict]:
    """Return objects of this process, if each says which it is. BadInput."""
    problems = []
    for number, item in enumerate(objects):
        if not isinstance(item, Mapping):
            problems.append(f"object {number}: {item!r} is not an object: give a mapping")
            continue
        metadata = item.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        fields = {
            "apiVersion": item.get("apiVersion"),
            "kind": item.get("kind"),
            "metadata.name": name,
        }
        problems += [
            f"object {number}: {field}: {value!r} is not a text"
            for field, value in fields.items()
            if not isinstance(value, str) or not value
        ]
    if problems:
        raise BadInput(problems)
    return [dict(item) for item in objects]


def _check_nodes(name: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= shapes.MOST_NODES:
        raise BadInput([f"{name}: {count!r} is not a number of nodes, 1 to {shapes.MOST_NODES}"])


def _generated(counts: Mapping[str, int]) -> list[JsonDict]:
    """Return the nodes of shapes, with their devices. UnknownObject."""
    found: list[JsonDict] = []
    for shape, count in counts.items():
        _check_nodes(shape, count)
        try:
            sample = shapes.sample(shape, nodes=count)
        except shapes.UnknownShape:
            known = ", ".join(shapes.names())
            raise UnknownObject(f"no shape {shape!r}; known: {known}") from None
        found = merged(found, [*rendering.nodes(sample), *rendering.v1(sample)])
    return found


def _is_kubeconfig(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > LARGEST_KUBECONFIG:
        return False
    try:
        found = single(read(path))
    except (OSError, YamlError, UnicodeDecodeError):
        return False
    return isinstance(found, dict) and found.get("kind") == "Config" and "clusters" in found


def _remote(path: Path) -> Client:
    try:
        return RemoteClient(read_kubeconfig(path))
    except KubeconfigError as error:
        raise BadInput([str(error)]) from error


def _of_cluster(client: Client, not_judged: list[str]) -> list[JsonDict]:
    try:
        return list(read_cluster(client, not_judged=not_judged.append))
    except ReadingError as error:
        raise BadInput([str(error)]) from error
    finally:
        if isinstance(client, RemoteClient):
            client.close()


def _of_files(files: Sequence[str]) -> list[JsonDict]:
    found = checked_manifests(files, WallClock())
    if found.problems:
        raise BadInput([str(each) for each in found.problems])
    if not found.objects:
        raise BadInput([f"{file}: holds no object" for file in files])
    return [each.object for each in found.objects]


class Lab:
    """A cluster as it was read; questions change nothing in it.

    `not_judged` names what the user may not list, and answers therefore leave out.
    """

    def __init__(self, objects: Sequence[JsonDict], not_judged: Sequence[str] = ()) -> None:
        self.objects = objects
        self.not_judged = not_judged
        self._snapshot: Snapshot | None = None
        self._model: ClusterModel | None = None

    @property
    def nodes(self) -> Sequence[str]:
        """The names of the nodes."""
        return list(self._cluster.nodes)

    @property
    def pending(self) -> Sequence[str]:
        """The names of what waits: `pod ml/train`, `claim ml/spare`."""
        return [each.title for each in self._cluster.pending(every=True)]

    def explain(self, name: str, *, node: str = "") -> ExplanationAnswer:
        """Explain a pod or claim: the reason to wait, or where it fits; with `node`, only there.

        `name` is `NAMESPACE/NAME`, or the name alone where only one has it. What waits before it
        gets its devices first, as for `dralab explain`. UnknownObject.
        """
        arguments.text("name", name)
        cluster = Snapshot(self.objects)
        _check_node(cluster, node)
        pending = cluster.pending(every=True)
        asked = _named(pending, name)
        if not asked:
            held = already_allocated(cluster, name)
            if held is None:
                raise UnknownObject(f"no pod or claim {name!r}; {_waiting(pending)}")
            return explanation(held)
        try:
            return explanation(next(answers(cluster, pending, asked, node=node)))
        except NoResult as error:
            raise TimeoutError(str(error)) from error

    def explain_all(self) -> Sequence[ExplanationAnswer]:
        """Return the same of everything that waits and asks for devices."""
        cluster = Snapshot(self.objects)
        pending = cluster.pending(every=True)
        asked = [each for each in pending if each.wants_devices]
        return [explanation(each) for each in answers(cluster, pending, asked)]

    def allocate(
        self, *more: Source, node: str = "", policy: str = "kubernetes"
    ) -> list[AllocationAnswer]:
        """Return what each waiting pod and claim gets, in their order; `more` counts as applied.

        `policy` is one of those of `dralab allocate`. Nothing is kept.
        """
        if arguments.text("policy", policy) not in POLICIES:
            raise UnknownObject(f"no policy {policy!r}; known: {', '.join(POLICIES)}")
        objects: Sequence[JsonDict] = self.objects
        for source in more:
            objects = merged(objects, _objects_of(source, []))
        cluster = Snapshot(objects)
        _check_node(cluster, node)
        found = []
        for each in cluster.pending(every=True):
            now = cluster.refreshed(each)
            placed = placed_on(cluster, now, node, POLICIES[policy] if now.wants_devices else None)
            if placed is None:
                told = why(cluster, now, node=node)
                found.append(
                    AllocationAnswer(
                        name=each.title, node="", devices=(), why=told.brief() if told else ""
                    )
                )
                continue
            results = [item for one in placed.allocations for item in one["devices"]["results"]]
            found.append(
                AllocationAnswer(
                    name=each.title,
                    node=placed.node,
                    devices=[f"{one['driver']}/{one['pool']}/{one['device']}" for one in results],
                    objects=list(placed.objects()),
                )
            )
        return found

    def what_if(
        self,
        *,
        add_nodes: int | Mapping[str, int] = 0,
        remove: str | Iterable[str] = (),
        cordon: str | Iterable[str] = (),
        uncordon: str | Iterable[str] = (),
        patch: Source | None = None,
    ) -> WhatIfAnswer:
        """Return what becomes of the pods after a change. UnknownObject, BadInput.

        `add_nodes` maps shapes (of `dralab generate`) or nodes to copy to how many; a number alone
        copies the first node that has devices. `patch` is merged into the objects of its names.
        """
        added = self._added(add_nodes)
        arguments.texts("add_nodes", added)
        for like, count in added.items():
            _check_nodes(f"add_nodes: {like}", count)
        changes: list[SupposedChange] = [
            *(AddNodes(like, count) for like, count in added.items()),
            *map(RemoveNode, arguments.texts("remove", remove)),
            *map(Cordon, arguments.texts("cordon", cordon)),
            *map(Uncordon, arguments.texts("uncordon", uncordon)),
        ]
        other = None
        if patch is not None:
            if not (given := _objects_of(patch, [])):
                raise BadInput(["patch: holds no object"])
            other = ClusterModel(patched(self.objects, given))
        if not changes and other is None:
            raise BadInput(["nothing would change: give add_nodes, remove, patch or another"])
        try:
            return WhatIfAnswer(structured_what_if(what_if(self._capacity, changes, other)))
        except UnknownName as error:
            raise UnknownObject(str(error)) from error

    def plan(
        self, shapes: Iterable[str] | Mapping[str, float] = (), *, budget: float | None = None
    ) -> PlanAnswer:
        """Return the fewest or cheapest nodes so that what waits runs. UnknownObject, BadInput.

        `shapes` are names of shapes or of nodes to copy, with their prices if they differ; without
        any, the first node that has devices is copied.
        """
        names = arguments.texts("shapes", shapes)
        prices = dict(shapes) if isinstance(shapes, Mapping) else dict.fromkeys(names, 1.0)
        given = [*prices.items(), *([("budget", budget)] if budget is not None else [])]
        problems = [
            f"{name}: {price!r} is not a price, 0 to {HIGHEST_PRICE:,}"
            for name, price in given
            if not is_price(price)
        ]
        if problems:
            raise BadInput(problems)
        try:
            found = plan(self._capacity, prices or {self._usual_node(): 1.0}, budget)
        except UnknownName as error:
            raise UnknownObject(str(error)) from error
        return PlanAnswer(structured_plan(found))

    def defragment(self, pod: str = "", *, max_moves: int | None = None) -> MovesAnswer:
        """Return the moves that make room for a pod, or for all that wait. UnknownObject."""
        model = self._capacity
        arguments.text("pod", pod)
        if max_moves is not None:
            arguments.whole("max_moves", max_moves)
        pods = [each for each in model.waiting if pod in {"", str(each.key), each.key.name}]
        if pod and not pods:
            known = ", ".join(str(each.key) for each in model.waiting) or "none"
            raise UnknownObject(f"no pod {pod!r} waits; those that do: {known}")
        return MovesAnswer(
            structured_moves(defragment(model, pods, MoveCosts(model, "moves"), most=max_moves))
        )

    def _added(self, wanted: int | Mapping[str, int]) -> Mapping[str, int]:
        if isinstance(wanted, Mapping):
            return wanted
        return {self._usual_node(): wanted} if wanted else {}

    def _usual_node(self) -> str:
        cluster = self._cluster
        homes = {record.home for record in cluster.fleet.pools.records}
        found = [name for name in cluster.nodes if name in homes] or list(cluster.nodes)
        if not found:
            raise UnknownObject("there is no node to copy: name a shape, such as 'h100'")
        return found[0]

    @property
    def _cluster(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = Snapshot(self.objects)
        return self._snapshot

    @property
    def _capacity(self) -> ClusterModel:
        if self._model is None:
            self._model = ClusterModel(self.objects)
        return self._model

    def _repr_html_(self) -> str:
        waiting = ColumnTable(("waits",), [(name,) for name in self.pending])
        return f"<p>{escape(repr(self))}</p>{waiting._repr_html_() if len(waiting) else ''}"

    def __repr__(self) -> str:
        cluster = self._cluster
        waiting = len(cluster.pending(every=True))
        return f"<Lab of {len(cluster.nodes)} nodes, {waiting} pods and claims wait>"


def _check_node(cluster: Snapshot, node: str) -> None:
    if arguments.text("node", node) and node not in cluster.nodes:
        raise UnknownObject(f"no node {node!r}; known nodes: {', '.join(cluster.nodes)}")


def _named(pending: Sequence[Pending], name: str) -> list[Pending]:
    namespace, slash, short = name.rpartition("/")
    found = [
        each
        for each in pending
        if each.name == short and (not slash or each.namespace == namespace)
    ]
    if len(found) > 1:
        titles = ", ".join(each.title for each in found)
        raise UnknownObject(f"several have the name {name!r}: {titles}; name the namespace")
    return found


def _waiting(pending: Sequence[Pending]) -> str:
    keys = [str(NamespacedName(each.namespace, each.name)) for each in pending[:MOST_SHOWN]]
    return f"what waits: {', '.join(keys) or 'nothing'}"
