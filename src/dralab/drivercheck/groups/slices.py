"""Checks of ResourceSlices: what a driver publishes, and how it keeps that up to date."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import MUST, PLUGIN_MANAGER, SHOULD, TYPES, Catalog
from dralab.drivercheck.check_node import NODE
from dralab.drivercheck.devices import counters_of, pools_of
from dralab.drivercheck.gate import SLICES_PATH, ApiCall, ApiFault
from dralab.drivercheck.rules import CheckNeed, NotApplicable, fail, require
from dralab.objects.slices import newest_of
from dralab.runtime.resources import NODES, SLICES
from dralab.values import quantity
from dralab.values.json_types import JsonDict

catalog: Final = Catalog("slices")
CONTROLLER: Final = "k8s.io/dynamic-resource-allocation/resourceslice/resourceslicecontroller.go"
ALLOCATOR: Final = "k8s.io/dynamic-resource-allocation/structured/internal"
OTHER_NODE: Final = "dralab-check-other-node"
FOREIGN_DRIVER: Final = "foreign.dralab.dev"
RESTARTS: Final = 3  # what a driver lists in no particular order differs after one of them


def writes(bench: Bench) -> list[ApiCall]:
    """Return the driver's finished writes of slices, oldest first."""
    calls = [call for call in bench.api.calls if call.writes and SLICES_PATH in call.path]
    return [call for call in calls if not call.injected]


@catalog.check(MUST, f"{TYPES}: ResourceSliceSpec; its validation", needs=[CheckNeed.API])
def accepted(bench: Bench) -> None:
    """The API accepts every ResourceSlice that the driver writes."""
    for call in writes(bench):
        # Conflicts and missing objects are normal.
        if call.status in (0, 404, 409) or call.status < 400:
            continue
        if _spec(call).get("sharedCounters") and _spec(call).get("devices"):
            continue  # slices.counters-apart
        answer = call.answered if isinstance(call.answered, dict) else {}
        fail(f"{call} was refused: {answer.get('message', call.status)}")


@catalog.check(MUST, f"{CONTROLLER}: DroppedFieldsError", needs=[CheckNeed.API])
def fields_kept(bench: Bench) -> None:
    """The API server keeps every field of the slices: none is unknown to it or of a feature that
    is off.
    """
    for call in writes(bench):
        sent, held = call.sent, call.answered
        if call.method not in {"POST", "PUT"} or call.status not in {200, 201}:
            continue
        if not isinstance(sent, dict) or not isinstance(held, dict):
            continue
        lost = sorted(dropped(sent.get("spec"), held.get("spec"), "spec"))
        require(not lost, f"the server dropped {', '.join(lost[:5])}")


def dropped(sent: Any, held: Any, path: str) -> list[str]:
    """Return the paths of fields that were sent and are not held, or with another value."""
    if isinstance(sent, Mapping):
        if not isinstance(held, Mapping):
            return [path] if sent else []
        return [
            each for key, v in sent.items() for each in dropped(v, held.get(key), f"{path}.{key}")
        ]
    if isinstance(sent, list):
        if not isinstance(held, list) or len(held) != len(sent):
            return [path] if sent else []
        return [
            each
            for index, pair in enumerate(zip(sent, held, strict=True))
            for each in dropped(*pair, f"{path}[{index}]")
        ]
    if sent in (None, "", 0, False):
        return []  # the zero value: absent on the server is the same
    return [] if sent == held or _same_quantity(sent, held) else [path]


def _same_quantity(one: Any, other: Any) -> bool:
    with suppress(ValueError, TypeError):
        return bool(quantity.parse(str(one)) == quantity.parse(str(other)))
    return False


@catalog.check(MUST, f"{TYPES}: ResourceSliceSpec.nodeName", needs=[CheckNeed.API])
def own_node(bench: Bench) -> None:
    """Slices of node-local devices name the node that the driver runs on."""
    for call in writes(bench):
        spec = _spec(call)
        name = spec.get("nodeName")
        require(
            name in (None, "", NODE),
            f"{call} has nodeName {name!r}: the driver runs on {NODE}",
        )


@catalog.check(
    MUST, f"{TYPES}: ResourcePool.resourceSliceCount; {ALLOCATOR}: an incomplete pool is not used"
)
def complete(bench: Bench) -> None:
    """A pool has as many slices as its resourceSliceCount says."""
    text = bench.settled(bench.incomplete)
    require(not text, text)


@catalog.check(MUST, f"{TYPES}: ResourcePool.resourceSliceCount")
def same_count(bench: Bench) -> None:
    """All slices of one generation of a pool have the same resourceSliceCount."""
    for pool, members in pools_of(bench.slices()).items():
        counts = sorted({one["spec"]["pool"]["resourceSliceCount"] for one in newest_of(members)})
        told = ", ".join(map(str, counts))
        require(len(counts) == 1, f"the slices of the pool {pool} have the counts {told}")


@catalog.check(MUST, f"{TYPES}: Device.name; {ALLOCATOR}: a pool with duplicate devices is invalid")
def unique_devices(bench: Bench) -> None:
    """The names of the devices are unique in their pool."""
    names = [(device.pool, device.name) for device in bench.devices()]
    twice = sorted({name for pool, name in names if names.count((pool, name)) > 1})
    require(not twice, f"several devices have the name {', '.join(twice)}")


@catalog.check(SHOULD, f"{CONTROLLER}: Owner; {TYPES}")
def owner(bench: Bench) -> None:
    """Slices of a node have the Node as owner, with its UID: they go when it goes."""
    uid = bench.client.get(NODES, bench.places.node)["metadata"]["uid"]
    for one in bench.slices():
        owners = one["metadata"].get("ownerReferences") or ()
        require(
            any(each["kind"] == "Node" and each["uid"] == uid for each in owners),
            f"{one['metadata']['name']} has no ownerReference to the Node {bench.places.node}",
        )


@catalog.check(SHOULD, f"{CONTROLLER}: generateName; ResourceSlices are cluster-scoped")
def names(bench: Bench) -> None:
    """Names of slices can't meet those of other nodes: generateName, or the node's name in them."""
    for one in bench.slices():
        metadata = one["metadata"]
        require(
            metadata.get("generateName") or bench.places.node in metadata["name"],
            f"the name {metadata['name']} is the same on every node",
        )


@catalog.check(
    MUST, f"{TYPES}: ResourceSliceSpec.sharedCounters (1.35 and later)", needs=[CheckNeed.API]
)
def counters_apart(bench: Bench) -> None:
    """sharedCounters and devices are in different slices."""
    for call in writes(bench):
        spec = _spec(call)
        require(
            not (spec.get("sharedCounters") and spec.get("devices")),
            f"{call} has both sharedCounters and devices",
        )


@catalog.check(
    MUST,
    f"{TYPES}: DeviceCounterConsumption.counterSet; {ALLOCATOR}: the pool is invalid otherwise",
)
def counters_defined(bench: Bench) -> None:
    """Every counter that a device consumes is defined in its pool."""
    known = set(counters_of(bench.slices()))
    for device in bench.devices():
        for pool, set_name, name, _ in _consumed(device.pool, device.body):
            require(
                (pool, set_name, name) in known,
                f"{device.name} consumes {set_name}/{name}, which the pool {pool} does not define",
            )


@catalog.check(SHOULD, f"{ALLOCATOR}: counters")
def counters_suffice(bench: Bench) -> None:
    """No device consumes more of a counter than there is: it could never be allocated."""
    values = counters_of(bench.slices())
    for device in bench.devices():
        for pool, set_name, name, wanted in _consumed(device.pool, device.body):
            value = values.get((pool, set_name, name))
            require(
                value is None or quantity.parse(wanted) <= value,
                f"{device.name} consumes {wanted} of {set_name}/{name}, which has {value}",
            )


def _consumed(pool: str, device: Any) -> list[tuple[str, str, str, str]]:
    return [
        (pool, entry["counterSet"], name, counter["value"])
        for entry in device.get("consumesCounters") or ()
        for name, counter in entry["counters"].items()
    ]


@catalog.check(
    SHOULD,
    f"{CONTROLLER}: a field selector; at 5,000 nodes every event would go to every driver",
    needs=[CheckNeed.API],
)
def own_selector(bench: Bench) -> None:
    """The driver lists and watches only slices of its node: by spec.nodeName or spec.driver."""
    wanted = re.compile(r"spec\.(nodeName|driver)(=|%3D)")
    for call in bench.api.calls:
        if "limit=1" in re.split("[?&]", call.query):
            continue  # a single object, for its resourceVersion
        if call.method == "GET" and re.search(r"/resourceslices$", call.path):
            require(wanted.search(call.query), f"{call} asks for the slices of all nodes")


@catalog.check(
    SHOULD, f"{CONTROLLER}: a sync without a difference writes nothing", needs=[CheckNeed.API]
)
def quiet(bench: Bench) -> None:
    """While nothing changes, no slice is written."""
    bench.wait(bench.limits.quiet / 2)  # a pool may still be in the making
    before = len(writes(bench))
    bench.wait(bench.limits.quiet)
    found = writes(bench)[before:]
    require(not found, f"{len(found)} writes without a reason{_first(found)}")


@catalog.check(
    SHOULD,
    f"{CONTROLLER}: Stop; the kubelet deletes them 30 s after the last connection",
    needs=[CheckNeed.RESTART],
    fresh=True,
)
def kept_on_stop(bench: Bench) -> None:
    """A driver that is stopped (SIGTERM) leaves its slices: they are there during an update."""
    bench.start()
    before = _names(bench)
    bench.stop()
    after = _names(bench)
    require(before <= after, "the driver deleted its slices when it was stopped")


@catalog.check(
    SHOULD,
    f"{CONTROLLER}: DeepEqual; every write makes all schedulers look again",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
    long=True,
)
def quiet_restart(bench: Bench) -> None:
    """Restarts with the same devices write no slice."""
    bench.start()
    _settle(bench)
    for _ in range(RESTARTS):
        bench.kill()
        # What it wrote before is judged by `slices.quiet`.
        before = len(writes(bench))
        asked = len(bench.api.calls)
        bench.restart()
        bench.until(
            partial(_has_read, bench, asked),
            bench.limits.ready,
            "after the restart the driver does not look at its slices",
        )
        bench.wait(bench.limits.quiet)
        found = writes(bench)[before:]
        require(not found, f"the restart wrote {len(found)} slices{_first(found)}")


def _first(calls: Sequence[ApiCall]) -> str:
    """Return the text about the first of some requests; its body is in the transcript."""
    return f", the first by {calls[0]}" if calls else ""


def _has_read(bench: Bench, asked: int) -> bool:
    """Whether the driver has read its slices since its first `asked` calls.

    It does so by a list, or by the first events of a watch.
    """
    return any(SLICES_PATH in call.path and call.status for call in bench.api.calls[asked:])


def _settle(bench: Bench) -> None:
    """Wait until no slice has been written for a moment; at most 20 times."""
    for _ in range(20):
        before = len(writes(bench))
        bench.wait(bench.limits.quiet / 4)
        if len(writes(bench)) == before:
            return


def _identities(bench: Bench) -> set[str]:
    return {one["metadata"]["uid"] for one in bench.slices()}


def _names(bench: Bench) -> set[tuple[str, str]]:
    return {(device.pool, device.name) for device in bench.devices()}


@catalog.check(
    MUST,
    f"{CONTROLLER}: pools that don't exist any more",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
    long=True,
)
def stale_pools(bench: Bench) -> None:
    """A starting driver removes slices of its own that an earlier version left on the node."""
    bench.start()
    _require_removal(bench, "stale-pool", 1)


@catalog.check(
    MUST,
    f"{TYPES}: ResourcePool.generation; {CONTROLLER}: obsolete slices",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
    long=True,
)
def one_generation(bench: Bench) -> None:
    """Slices of an older generation of a pool are removed."""
    bench.start()
    _settle(bench)
    pool = bench.slices()[0]["spec"]["pool"]
    _require_removal(bench, pool["name"], max(pool["generation"] - 1, 0))


def _require_removal(bench: Bench, pool: str, generation: int) -> None:
    """Add a slice while the driver is down, and require that it is gone after the restart."""
    _settle(bench)
    [driver] = {one["spec"]["driver"] for one in bench.slices()}
    bench.kill()
    stale = _slice(bench, "stale-slice", driver, NODE, pool, generation)
    bench.restart()
    bench.until(
        lambda: stale["metadata"]["uid"] not in _identities(bench),
        bench.limits.repair,
        f"the slice of generation {generation} of the pool {pool} is still there",
    )


@catalog.check(
    MUST,
    f"{CONTROLLER}: the informer's field selector",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
)
def others_untouched(bench: Bench) -> None:
    """Slices of other drivers, and of other nodes, stay as they are."""
    bench.client.create(NODES, {"metadata": {"name": OTHER_NODE}})
    foreign = _slice(bench, "foreign-driver", FOREIGN_DRIVER, NODE, NODE)
    bench.start()
    [driver] = {s["spec"]["driver"] for s in bench.slices()} - {FOREIGN_DRIVER}
    bench.kill()
    elsewhere = _slice(bench, "other-node", driver, OTHER_NODE, OTHER_NODE)
    bench.restart()
    _settle(bench)
    for one in (foreign, elsewhere):
        name = one["metadata"]["name"]
        with suppress(ApiError):
            if bench.client.get(SLICES, name)["spec"] == one["spec"]:
                continue
        fail(f"the driver changed or deleted the slice {name}, which is not its own")


@catalog.check(
    MUST,
    f"{PLUGIN_MANAGER}: a starting kubelet deletes all slices of its node",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
    long=True,
)
def after_wipe(bench: Bench) -> None:
    """Slices that the kubelet has deleted are published again."""
    with _repaired(bench, "the slices that were deleted are not back"):
        for one in bench.slices():
            bench.client.delete(SLICES, one["metadata"]["name"])


@catalog.check(
    MUST,
    f"{CONTROLLER}: syncPool compares what is there with what should be",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
    long=True,
)
def after_edit(bench: Bench) -> None:
    """A slice that another client has changed is repaired."""
    with _repaired(bench, "the device that was taken out of a slice is not back"):
        if len(bench.devices()) < 2:
            raise NotApplicable("it takes one device of several away")
        edited = next(one for one in bench.slices() if one["spec"].get("devices"))
        spec = {**edited["spec"], "devices": edited["spec"]["devices"][:-1]}
        bench.client.update(SLICES, {**edited, "spec": spec})


@contextmanager
def _repaired(bench: Bench, otherwise: str) -> Iterator[None]:
    """Require that the driver publishes its devices again after the block has damaged slices.

    The driver is started twice, so that it has not just created the slices: for 60 s, the Go
    library takes slices that it has written for existing. Drivers that list their devices in no
    particular order write at each start; they get the 60 s.
    """
    bench.start()
    _settle(bench)
    bench.kill()
    before = len(writes(bench))
    bench.restart(devices=True)
    bench.wait(bench.limits.quiet)
    if len(writes(bench)) > before:
        bench.wait(bench.limits.remembered)
    wanted = _names(bench)
    yield
    bench.until(lambda: _names(bench) == wanted, bench.limits.repair, otherwise)


@catalog.check(
    MUST,
    "Kubernetes API concepts: watches end at any time; client-go's reflector opens another one",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
    long=True,
)
def after_watch(bench: Bench) -> None:
    """After its watch has ended, the driver still repairs its slices."""
    with _repaired(bench, "after the end of the watch, a deleted slice is not back"):
        bench.api.hang_up()
        bench.wait(bench.limits.quiet / 2)
        bench.client.delete(SLICES, bench.slices()[-1]["metadata"]["name"])


@catalog.check(
    MUST,
    "KEP-3157: clients fall back to LIST and WATCH after 422",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
)
def without_watchlist(bench: Bench) -> None:
    """Slices are published on a server without WatchList, which refuses sendInitialEvents."""
    with bench.api.fault(ApiFault(lambda call: "sendInitialEvents" in call.query, status=422)):
        bench.start()


def _slice(  # noqa: PLR0917 - the parts of one slice
    bench: Bench, name: str, driver: str, node: str, pool: str, generation: int = 1
) -> JsonDict:
    """Create a slice that the driver under test has not written."""
    body = {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": "left-behind"}],
        },
    }
    return bench.client.create(SLICES, body)


def _spec(call: ApiCall) -> JsonDict:
    found = call.sent.get("spec") if isinstance(call.sent, dict) else None
    return found if isinstance(found, dict) else {}
