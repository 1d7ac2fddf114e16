"""Case files of allocations: solve each case, and compare with what it expects.

The cases have one of three forms of expectation: exact allocations (`expectResults`), a verdict
with any valid allocation (`expectFeasible`), or the devices of a minimal problem (`expect`). Each
case names the feature gates that are on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.check.verification import DeviceKey, HeldDevice, Verifier
from dralab.allocation.outcome import Allocated, Unknown, Unsatisfiable
from dralab.allocation.problem import (
    AllocationFeatures,
    DeviceId,
    DeviceSelectorError,
    InUse,
    Problem,
    ShareId,
)
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.claims import results_of
from dralab.values.json_types import JsonObject
from dralab.values.quantity import parse_any
from dralab.values.records import dataclass

BUDGET = 1_000_000


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """One case: the result, and its problems."""

    name: str
    results: list[dict[str, Any]]
    error: str | None
    problems: tuple[str, ...]


def judged(cases: Sequence[JsonObject]) -> Iterator[CaseVerdict]:
    """Yield the verdict on every case, in order."""
    reader = v1.V1Reader(CelSelectorCompiler())
    for case in cases:
        results, error = solved(case, reader)
        yield CaseVerdict(
            case["name"], results, error, tuple(_problems(case, results, error, reader))
        )


def readable(case: object) -> bool:
    """Return whether a value is a case in one of the three formats."""
    if not isinstance(case, dict) or not {"name", "claims", "classes", "slices", "node"} <= (
        case.keys()
    ):
        return False
    return any(key in case for key in ("expectResults", "expectFeasible", "expect"))


def solved(case: JsonObject, reader: v1.V1Reader) -> tuple[list[dict[str, Any]], str | None]:
    """Return the allocations of a case, one per claim or none at all, and the error if any."""
    outcome = allocate(problem_of(case, reader), v1.node(case["node"]), budget=BUDGET)
    match outcome:
        case Allocated():
            return [v1.status_allocation(each) for each in outcome.claims], None
        case Unsatisfiable():
            return [], outcome.error or None
        case Unknown():
            return [], f"unknown within {outcome.budget} steps"


def problem_of(case: JsonObject, reader: v1.V1Reader) -> Problem:
    """Return the allocation problem of a case."""
    consumed: dict[DeviceId, dict[str, Any]] = {}
    for item in case.get("allocatedCapacity") or ():
        v1.add_amounts(consumed.setdefault(_id(item), {}), item.get("consumedCapacity"))
    return Problem(
        claims=tuple(reader.claim(item) for item in case["claims"]),
        classes={item["metadata"]["name"]: reader.device_class(item) for item in case["classes"]},
        slices=tuple(reader.slice(item) for item in case["slices"]),
        in_use=InUse(
            exclusive=frozenset(_id(item) for item in case.get("allocatedDevices") or ()),
            shares=frozenset(
                ShareId(_id(item), item["shareID"])
                for item in case.get("allocatedSharedDeviceIDs") or ()
            ),
            consumed=consumed,
        ),
        features=AllocationFeatures.named(case["features"])
        if "features" in case
        else AllocationFeatures(),
    )


def _id(item: JsonObject) -> DeviceId:
    return DeviceId(item["driver"], item["pool"], item["device"])


def _problems(
    case: JsonObject, results: list[dict[str, Any]], error: str | None, reader: v1.V1Reader
) -> Iterator[str]:
    if "expectResults" in case:
        yield from _to_the_letter(case, results, error)
        return
    if results:
        yield from _violations(case, results, reader)
    if "expectFeasible" in case:
        yield from _verdict(case, results, error, feasible=case["expectFeasible"])
        if results and case["expectFeasible"]:
            chosen = _chosen_alternatives(case, results)
            if chosen != (case.get("expectChosenSubrequests") or {}):
                yield f"chose {chosen}, want {case['expectChosenSubrequests']}"
        return
    expected = case["expect"]
    yield from _verdict(case, results, error, feasible=expected["feasible"])
    if results and expected.get("devices") is not None:
        devices = [_devices(each) for each in results]
        if devices != expected["devices"]:
            yield f"chose {devices}, want {expected['devices']}"


def _verdict(
    case: JsonObject, results: Sequence[JsonObject], error: str | None, *, feasible: bool
) -> Iterator[str]:
    met = len(results) == len(case["claims"]) and error is None
    if met != feasible:
        found = "all claims allocated" if met else (error or "nothing allocated")
        yield f"{found}, want {'all claims allocated' if feasible else 'nothing allocated'}"


def _to_the_letter(
    case: JsonObject, results: Sequence[JsonObject], error: str | None
) -> Iterator[str]:
    wanted = case["expectErrorSubstring"]
    if wanted is None and error is not None:
        yield f"unexpected error: {error}"
    if wanted is not None and wanted not in (error or ""):
        yield f"error {error!r} does not contain {wanted!r}"
    rest = list(results)
    expected = case["expectResults"]
    if len(rest) != len(expected):
        yield f"{len(rest)} allocations, want {len(expected)}"
        return
    # Which claim comes first does not matter, so each expectation takes its equal away.
    for each in expected:
        unordered = each["match"] == "unordered"
        want = _comparable(each["allocation"], unordered=unordered)
        found = next(
            (item for item in rest if _comparable(item, unordered=unordered) == want), None
        )
        if found is None:
            yield f"no allocation equals {each['allocation']}"
        else:
            rest.remove(found)


def _comparable(allocation: JsonObject, *, unordered: bool) -> tuple[object, ...]:
    devices = allocation.get("devices") or {}
    results = [_comparable_result(item) for item in devices.get("results") or ()]
    if unordered:
        results.sort(key=repr)
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    selector = sorted(
        sorted(
            (kind, item["key"], item["operator"], *sorted(item.get("values") or ()))
            for kind in ("matchExpressions", "matchFields")
            for item in term.get(kind) or ()
        )
        for term in terms
    )
    return results, _plain(devices.get("config") or []), selector


def _comparable_result(item: JsonObject) -> object:
    amounts = item.get("consumedCapacity") or {}
    return _plain(
        dict(item)
        | ({"shareID": "some"} if item.get("shareID") else {})
        | {"consumedCapacity": {name: parse_any(value) for name, value in amounts.items()}}
    )


def _plain(value: object) -> object:
    """Return a value without its empty parts."""
    if isinstance(value, dict):
        found = {name: _plain(part) for name, part in sorted(value.items())}
        return {name: part for name, part in found.items() if part not in (None, [], {})}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _devices(allocation: JsonObject) -> list[list[str]]:
    return [
        [item["request"], item["driver"], item["pool"], item["device"]]
        for item in results_of(allocation)
    ]


def _chosen_alternatives(case: JsonObject, results: Sequence[JsonObject]) -> dict[str, str]:
    return {
        f"{claim['metadata']['name']}/{request}": alternative
        for claim, allocation in zip(case["claims"], results, strict=True)
        for request, slash, alternative in (
            item["request"].partition("/") for item in results_of(allocation)
        )
        if slash
    }


def _violations(
    case: JsonObject, results: Sequence[JsonObject], reader: v1.V1Reader
) -> Iterator[str]:
    """Check the allocations against the objects, with code that shares nothing with the search."""
    held = [HeldDevice(DeviceKey(*_id(item))) for item in case.get("allocatedDevices") or ()]
    held += [
        HeldDevice(DeviceKey(*_id(item)), share=True, consumed=item.get("consumedCapacity") or {})
        for item in case.get("allocatedCapacity") or ()
    ]
    verifier = Verifier(
        claims=case["claims"],
        classes=case["classes"],
        slices=case["slices"],
        node=case["node"],
        matches=_matches(reader),
        held=held,
        gates=frozenset(case["features"]) if "features" in case else None,
    )
    yield from verifier.violations(results)


def _matches(reader: v1.V1Reader) -> Callable[[str, str, JsonObject], bool]:
    def matches(expression: str, driver: str, device: JsonObject) -> bool:
        try:
            return reader.environment.selector(expression).matches(reader.device(driver, device))
        except DeviceSelectorError:
            return False

    return matches
