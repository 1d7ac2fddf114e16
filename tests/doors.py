"""Every way to ask where a pod goes: what each door says of a pod, in one form.

A door is asked about the objects of a cluster in which one pod waits (or one group). What it does
not tell is None.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from dralab.api.status import ApiError
from dralab.apiserver.storage import Key
from dralab.capacity.relocation import devices_of
from dralab.cli.main import main
from dralab.cluster import Cluster
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import ManualClock
from dralab.objects.claims import allocation_of, claim_names, results_of
from dralab.objects.metadata import annotations_of
from dralab.objects.volumes import SELECTED_NODE
from dralab.objects.volumes import claims_of as volume_claims_of
from dralab.runtime.resources import RESOURCE_QUOTAS
from dralab.scheduling.cycle import PodPlacement
from dralab.scheduling.model import ClusterModel
from dralab.values.json_types import JsonDict
from dralab.values.labels import nodes_named_by
from dralab.web.desk import Desk
from dralab.web.sources import FixedSource
from ourverdicts import is_tried, wants_devices

NAMESPACE = "default"
CODE = re.compile(r"\bDRA\d{3}\b")
# A change that makes no difference.
NOTHING = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "nothing", "namespace": NAMESPACE},
}


@dataclass(frozen=True)
class DoorAnswer:
    """What a door says: the node (empty: none), the devices as POOL/DEVICE, and why it waits.

    `known` is false where the door says nothing of the pod at all.
    """

    node: str | None = None
    devices: tuple[str, ...] | None = None
    code: str | None = None
    fits: bool | None = None
    known: bool = True


UNKNOWN = DoorAnswer(known=False)
Door = Callable[[Path, Sequence[JsonDict], str], DoorAnswer]


def model(_: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    """The one model, which all others should agree with; a pod that nobody tries goes nowhere."""
    own = next(
        item for item in objects if item["kind"] == "Pod" and item["metadata"]["name"] == name
    )
    if not is_tried(own):
        return DoorAnswer("", (), None, fits=False)
    cluster = ClusterModel(objects)
    pod = next(each for each in cluster.waiting if each.key.name == name)
    decided = cluster.run(cluster.waiting)[pod.uid]
    if not isinstance(decided, PodPlacement):
        return DoorAnswer("", (), None, fits=False)
    return DoorAnswer(decided.node, tuple(sorted(devices_of(decided))), "", fits=True)


def explain(place: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    code, out = _run("explain", "-f", _file(place, objects), "-o", "json", name)
    return UNKNOWN if code == 2 else _explained(json.loads(out)[0])


def page(_: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    desk = Desk(FixedSource(objects), ManualClock(0), "test", live=False)
    try:
        return _explained(json.loads(desk.explanation("pod", NAMESPACE, name)))
    except ApiError:
        return UNKNOWN


def allocate(place: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    """Nodes are in the table; a pod without claims is in none."""
    code, out = _run("allocate", "-f", _file(place, objects))
    rows = [line.split() for line in out.splitlines()]
    own = [row for row in rows if len(row) > 5 and row[:2] == [NAMESPACE, name]]
    if code == 2 or not own:
        return UNKNOWN
    if own[0][3] == "-":
        told = next(
            line for line in out.splitlines() if line.startswith(f"pod {NAMESPACE}/{name}:")
        )
        return DoorAnswer("", (), _code_in(told), fits=False)
    given = tuple(sorted(f"{row[6]}/{row[5]}" for row in own if row[5] not in {"-", "(allocated)"}))
    return DoorAnswer(own[0][3], given or None, fits=True)


def allocate_on_server(place: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    """`dralab allocate --apply` writes to a server: what it wrote is read from there."""
    with stored(place, objects) as cluster:
        words = (
            "allocate",
            "--apply",
            "--api",
            "v1",
            "--kubeconfig",
            str(cluster.kubeconfig),
            name,
        )
        code, out = _run(*words)
        return UNKNOWN if code == 2 else _written(cluster.server.store, name, out)


def what_if(place: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    patch = place / "nothing.json"
    patch.write_text(json.dumps(NOTHING))
    words = ("what-if", "-f", _file(place, objects), "--patch", str(patch), "--all", "-o", "json")
    _, out = _run(*words)
    own = [each for each in json.loads(out)["pods"] if each["name"] == name]
    if not own:
        return UNKNOWN
    told = own[0]
    return DoorAnswer(
        told["after"] or "", tuple(sorted(told["devices"])), told.get("code"), bool(told["after"])
    )


def plan(place: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    """It says whether a pod fits as things are; nodes to add are another question."""
    node = next(item for item in objects if item["kind"] == "Node")["metadata"]["name"]
    words = (
        "plan",
        "nodes",
        "-f",
        _file(place, objects),
        "--shapes",
        node,
        "--max-price",
        "0",
        "-o",
        "json",
    )
    _, out = _run(*words)
    told, key = json.loads(out), f"{NAMESPACE}/{name}"
    if key in told["fitting"]:
        return DoorAnswer(fits=True)
    waits = [each for each in told["waiting"] if each["pod"] == key]
    return DoorAnswer(fits=False, code=waits[0].get("code")) if waits else UNKNOWN


def live_scheduler(_: Path, objects: Sequence[JsonDict], name: str) -> DoorAnswer:
    """The scheduler of a simulated cluster: what it wrote."""
    cluster = SimulatedCluster(without=("controllers",))
    with cluster.server.store.lock, cluster.server.store.batch():
        for item in copy.deepcopy(objects):
            key = _key(cluster.server.resources.kinds, item)
            if item["kind"] != "ResourceQuota" and cluster.server.store.get(key) is None:
                cluster.server.store.create(key, item)
    for item in objects:
        if item["kind"] == "ResourceQuota":
            # The server counts what quotas allow when they are written.
            cluster.client.create(RESOURCE_QUOTAS, copy.deepcopy(item), NAMESPACE)
    cluster.wait(5)
    pod = cluster.server.store.get(Key("pods", NAMESPACE, name)).value
    conditions = (pod.get("status") or {}).get("conditions") or ()
    told = next(
        (each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), ""
    )
    return _written(cluster.server.store, name, told)


DOORS: dict[str, Door] = {
    "allocate": allocate,
    "allocate on a server": allocate_on_server,
    "explain": explain,
    "what-if": what_if,
    "plan": plan,
    "page": page,
    "live scheduler": live_scheduler,
}

# What a door cannot see: a quota keeps claims from being made, and the scheduler waits for them.
UNSEEN = {("live scheduler", "DRA061")}

_servers: dict[Path, Cluster] = {}


@contextmanager
def serving(place: Path) -> Iterator[None]:
    """Keep a server for the doors that need one."""
    with Cluster() as cluster:
        _servers[place] = cluster
        try:
            yield
        finally:
            del _servers[place]


@contextmanager
def stored(place: Path, objects: Sequence[JsonDict]) -> Iterator[Cluster]:
    """Put objects on the server of a place, as they are; they are gone afterwards."""
    cluster = _servers[place]
    objects = copy.deepcopy(objects)
    store, kinds = cluster.server.store, cluster.server.resources.kinds
    keys = [_key(kinds, item) for item in objects]
    # A command makes claims of templates.
    used = {"resource.k8s.io/resourceclaims", *(key.resource for key in keys)}
    before = {each.key for kind in used for each in store.list(kind).items}
    try:
        for key, item in zip(keys, objects, strict=True):
            if item["kind"] == "ResourceQuota":
                # The server counts what quotas allow when they are written.
                cluster.client.create(RESOURCE_QUOTAS, item, NAMESPACE)
            else:
                store.create(key, item)
        yield cluster
    finally:
        for kind in used:
            for each in list(store.list(kind).items):
                if each.key not in before:
                    store.delete(each.key)


def _key(kinds, item: JsonDict) -> Key:
    kind = next(
        each
        for each in kinds
        if (each.api_version, each.kind) == (item["apiVersion"], item["kind"])
    )
    return Key(kind.hub, item["metadata"].get("namespace") or "", item["metadata"]["name"])


def _file(place: Path, objects: Sequence[JsonDict]) -> str:
    path = place / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)


def _code_in(told: str) -> str | None:
    """The code that a text for people ends its cause with."""
    found = CODE.search(told)
    return found[0] if found else None


def _run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code in {0, 1, 2}, (words, result.output, result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def _explained(told: JsonDict) -> DoorAnswer:
    if told["fits"]:
        return DoorAnswer(told.get("node"), None, "", fits=True)
    return DoorAnswer("", (), told["code"], fits=False)


def _written(store, name: str, told: str) -> DoorAnswer:
    stored = store.get(Key("pods", NAMESPACE, name))
    pod = stored.value
    status = pod.get("status") or {}
    node = pod["spec"].get("nodeName") or _selected(store, pod) or _attached(store, pod)
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    names = dict.fromkeys(each for each in (*claim_names(pod), extended) if each)
    claims = [
        item.value
        for each in names
        if (item := store.get(Key("resource.k8s.io/resourceclaims", NAMESPACE, each))) is not None
    ]
    given = [each for item in claims for each in _given(item)]
    return DoorAnswer(node, tuple(sorted(given)) if node else (), _code_in(told), bool(node))


def _selected(store, pod: JsonDict) -> str:
    """The node for which a volume is being made: the pod is bound once the volume is there."""
    for name, _ in volume_claims_of(pod):
        found = store.get(Key("persistentvolumeclaims", NAMESPACE, name))
        if found is not None and (node := annotations_of(found.value).get(SELECTED_NODE)):
            return node
    return ""


def _attached(store, pod: JsonDict) -> str:
    """The node for which devices are being made ready: the pod is bound once they are."""
    for name in claim_names(pod):
        found = store.get(Key("resource.k8s.io/resourceclaims", NAMESPACE, name))
        allocation = None if found is None else allocation_of(found.value)
        if any(each.get("bindingConditions") for each in results_of(allocation)):
            terms = ((allocation or {}).get("nodeSelector") or {}).get("nodeSelectorTerms") or [{}]
            return next(iter(nodes_named_by(terms[0]) or ()), "")
    return ""


def _given(claim: JsonDict) -> list[str]:
    return [f"{each['pool']}/{each['device']}" for each in results_of(allocation_of(claim))]


def differences(place: Path, objects: Sequence[JsonDict], name: str) -> dict[tuple[str, str], str]:
    """Return where doors say another thing of a pod than the model: by door and aspect."""
    own = next(
        item for item in objects if item["kind"] == "Pod" and item["metadata"]["name"] == name
    )
    expected = model(place, objects, name)
    told = {door: ask(place, objects, name) for door, ask in DOORS.items()}
    code = told["explain"].code
    found: dict[tuple[str, str], str] = {}
    for door, answer in told.items():
        if not answer.known and (door != "allocate" or wants_devices(objects, own)):
            found[door, "told"] = "nothing is told of the pod"
        if not answer.known:
            continue
        if answer.fits != expected.fits:
            aspect = "fits" if is_tried(own) else "fits, although nobody schedules it"
            found[door, aspect] = f"fits: {answer.fits}, the model: {expected.fits}"
            continue
        for aspect in ("node", "devices"):
            one, other = getattr(answer, aspect), getattr(expected, aspect)
            if one not in {None, other}:
                found[door, aspect] = f"{one}, the model: {other}"
        says = is_tried(own) or door != "live scheduler"  # which leaves such a pod alone
        says = says and (door, code) not in UNSEEN
        if says and not expected.fits and (not answer.code or code not in {None, answer.code}):
            found[door, "code"] = f"{answer.code}, explain: {code}"
    return found
