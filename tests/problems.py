"""Small allocation problems: a generator, an oracle that tries everything, and a selector table.

The generator makes what the fuzz cases of upstream's bugs are made of: taints, counters,
constraints, lists, alternatives, shared devices, one or two drivers, things in use. The oracle
tries every combination and asks the verifier about each: slow and obvious.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from builders import ask, claim, counter_set, device, device_class, node, pool, taint
from dralab.allocation import v1
from dralab.allocation.check.verification import DeviceChoice, DeviceKey, HeldDevice, Verifier
from dralab.allocation.problem import AllocationFeatures, Problem
from dralab.cel import compile_selector, device_of

DRIVERS = ("a", "b")
KINDS = ("x", "y")
LABELS = ("l0", "l1")


def held_by(claims: Sequence[Any]) -> list[HeldDevice]:
    """Return what allocated claims hold; admin access holds nothing."""
    return [
        HeldDevice(
            DeviceKey(result["driver"], result["pool"], result["device"]),
            bool(result.get("shareID")),
            result.get("consumedCapacity") or {},
        )
        for each in claims
        if (allocation := each.get("status", {}).get("allocation"))
        for result in allocation.get("devices", {}).get("results", ())
        if not result.get("adminAccess")
    ]


# --- selectors without a CEL engine --------------------------------------------------------------

DRIVER_IS = re.compile(r'device\.driver == "(\w+)"')
KIND_IS = re.compile(r'device\.attributes\[device\.driver\]\.\?kind\.orValue\(""\) == "(\w+)"')


def of_driver(name: str) -> str:
    return f'device.driver == "{name}"'


def of_kind(kind: str) -> str:
    return f'device.attributes[device.driver].?kind.orValue("") == "{kind}"'


def matches(expression: str, driver: str, wire: Any) -> bool:
    """What the few expressions of generated problems mean, for the verifier."""
    if found := DRIVER_IS.fullmatch(expression):
        return driver == found[1]
    if found := KIND_IS.fullmatch(expression):
        kind = (wire.get("attributes") or {}).get("kind") or {}
        return kind.get("string") == found[1]
    return {"true": True, "false": False}[expression]


def by_cel(expression: str, driver: str, wire: Any) -> bool:
    """What any expression means, for the verifier."""
    return compile_selector(expression).evaluate(device_of(wire, driver))


@dataclass(frozen=True, slots=True)
class TableSelector:
    """The same expressions for the search."""

    text: str

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        if DRIVER_IS.fullmatch(self.text):
            return frozenset({("driver",)})
        if KIND_IS.fullmatch(self.text):
            return frozenset({("attributes", name, "kind") for name in DRIVERS} | {("driver",)})
        return frozenset()

    def matches(self, of: Any) -> bool:
        if found := DRIVER_IS.fullmatch(self.text):
            return of.driver == found[1]
        if found := KIND_IS.fullmatch(self.text):
            kind = of.attributes.get(f"{of.driver}/kind")
            return kind is not None and kind.values == (found[1],)
        return {"true": True, "false": False}[self.text]


class TableEnvironment:
    """Turns the few expressions of generated problems into selectors."""

    def selector(self, text: str) -> TableSelector:
        return TableSelector(text)

    def derivation(self, text: str) -> Any:
        raise NotImplementedError(text)


# --- a problem -----------------------------------------------------------------------------------


@dataclass
class Case:
    """Objects as v1 mappings, with what they are asked for."""

    claims: list[Any]
    slices: list[Any]
    classes: list[Any] = field(default_factory=lambda: [device_class("gpu")])
    node: Any = field(default_factory=node)
    others: list[Any] = field(default_factory=list)
    """Allocated claims of other pods."""
    gates: frozenset[str] | None = None

    def verifier(self, matches_=matches) -> Verifier:
        return Verifier(
            claims=self.claims,
            classes=self.classes,
            slices=self.slices,
            node=self.node,
            matches=matches_,
            held=held_by(self.others),
            gates=self.gates,
        )

    def problem(self, environment: Any = None) -> Problem:
        reader = v1.V1Reader(environment or TableEnvironment())
        return Problem(
            claims=tuple(reader.claim(item) for item in self.claims),
            classes={item["metadata"]["name"]: reader.device_class(item) for item in self.classes},
            slices=tuple(reader.slice(item) for item in self.slices),
            in_use=v1.in_use(self.others),
            features=AllocationFeatures()
            if self.gates is None
            else AllocationFeatures.named(self.gates),
        )


# --- the oracle ----------------------------------------------------------------------------------


class TooBigError(Exception):
    """The oracle would have to try too much."""


@dataclass
class Tried:
    """The first solution in Kubernetes' order, None where there is none, and the dead ends."""

    solution: list[DeviceChoice] | None
    dead_ends: int
    steps: int


def tried(case: Case, *, limit: int = 20_000, matches_=matches) -> Tried:
    """Try everything in order: claims, requests, alternatives, combinations of devices."""
    verifier = case.verifier(matches_)
    plan: list[list[tuple[int, str]]] = []
    for index, item in enumerate(case.claims):
        for request in item["spec"]["devices"].get("requests", ()):
            subs = request.get("firstAvailable")
            names = (
                [f"{request['name']}/{sub['name']}" for sub in subs] if subs else [request["name"]]
            )
            plan.append([(index, name) for name in names])
    everything = [name for names in plan for name in names]
    if verifier.unusable and any(
        verifier.asked(*name).get("allocationMode") == "All" for name in everything
    ):
        return Tried(None, 0, 0)
    search = _Search(verifier, plan, limit)
    return Tried(search.request(0, []), search.dead_ends, search.steps)


class _Search:
    def __init__(self, verifier: Verifier, plan: Sequence[Any], limit: int) -> None:
        self.verifier = verifier
        self.plan = plan
        self.limit = limit
        self.steps = self.dead_ends = 0
        self.candidates = {name: verifier.candidates(*name) for names in plan for name in names}

    def request(self, at: int, chosen: list[DeviceChoice]) -> list[DeviceChoice] | None:
        if at == len(self.plan):
            return chosen
        for name in self.plan[at]:
            asked = self.verifier.asked(*name)
            if asked.get("allocationMode") == "All":
                everything = self.verifier.everything(*name) or []
                more = [*chosen, *(DeviceChoice(*name, key) for key in everything)]
                fits = bool(everything) and not any(self.verifier.problems(more, complete=False))
                found = self.request(at + 1, more) if fits else None
            else:
                found = self.some(at, name, asked.get("count") or 1, 0, chosen)
            if found is not None:
                return found
        return None

    def some(self, at, name, missing, start, chosen) -> list[DeviceChoice] | None:
        if not missing:
            found = self.request(at + 1, chosen)
            self.dead_ends += found is None
            return found
        keys = self.candidates[name]
        for index in range(start, len(keys)):
            self.steps += 1
            if self.steps > self.limit:
                raise TooBigError
            more = [*chosen, DeviceChoice(*name, keys[index])]
            if not any(self.verifier.problems(more, complete=False)):
                found = self.some(at, name, missing - 1, index + 1, more)
                if found is not None:
                    return found
        return None


# --- the generator -------------------------------------------------------------------------------


@st.composite
def devices(draw, name: str, *, partitioned: bool) -> Any:
    attributes: dict[str, Any] = {}
    if draw(st.integers(0, 3)):
        attributes["kind"] = draw(st.sampled_from(KINDS))
    if draw(st.integers(0, 7)):
        attributes["label"] = draw(st.sampled_from(LABELS))
    if draw(st.integers(0, 2)):
        attributes["links"] = draw(
            st.one_of(
                st.integers(1, 3),
                st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True),
            )
        )
    shared = draw(st.integers(0, 4)) == 0
    more: dict[str, Any] = {}
    if shared or draw(st.integers(0, 5)) == 0:
        size = draw(st.integers(1, 6))
        entry: dict[str, Any] = {"value": str(size)}
        if shared and draw(st.booleans()):
            least = draw(st.integers(1, size))
            entry["requestPolicy"] = {
                "default": str(least),
                "validRange": {"min": str(least), "step": "1"},
            }
        more["capacity"] = {"mem": entry}
    if draw(st.integers(0, 7)) == 0:
        more["taints"] = [taint("k", draw(st.sampled_from(["NoSchedule", "NoExecute", "None"])))]
    consumes = {}
    if partitioned:
        for counter in draw(st.lists(st.sampled_from(["s0", "s1"]), max_size=2, unique=True)):
            consumes[counter] = {"m": draw(st.integers(1, 3))}
    made = device(name, consumes=consumes, shared=shared, **attributes) | more
    for used in made.get("consumesCounters", ()):
        groups = draw(st.sampled_from([[], [], [], ["g0"], ["g1"], ["g0", "g1"]]))
        used.update({"compatibilityGroups": groups} if groups else {})
    return made


@st.composite
def pools(draw) -> list[Any]:
    slices: list[Any] = []
    for driver in DRIVERS[: draw(st.integers(1, 2))]:
        partitioned = draw(st.integers(0, 2)) == 0
        count = draw(st.integers(2, 5 if driver == "a" else 3))
        made = [draw(devices(f"d{i}", partitioned=partitioned)) for i in range(count)]
        sets = [counter_set(name, m=draw(st.integers(2, 5))) for name in ("s0", "s1")]
        slices += pool(
            "p",
            *made,
            driver=driver,
            counters=sets if partitioned else None,
            node=draw(st.sampled_from(["node-1", "node-1", "node-1", None])),
        )
    for item in slices:
        item["metadata"]["name"] = f"{item['spec']['driver']}-{item['metadata']['name']}"
    if draw(st.integers(0, 15)) == 0:
        slices[-1]["spec"]["pool"]["resourceSliceCount"] = 7
    if draw(st.integers(0, 7)) == 0:
        _choosing_nodes(draw, slices[0]["spec"])
    return slices


def _choosing_nodes(draw, spec: Any) -> None:
    """Let each device of a slice say from which nodes it can be used."""
    spec.pop("nodeName", None)
    spec.pop("allNodes", None)
    spec["perDeviceNodeSelection"] = True
    for made in spec["devices"]:
        where = [{"allNodes": True}, {"nodeName": "node-1"}, {"nodeName": "node-2"}]
        made.update(draw(st.sampled_from(where)))


@st.composite
def asks(draw, *, sub: bool = False) -> Any:
    selectors = draw(
        st.lists(
            st.one_of(
                st.sampled_from(DRIVERS).map(of_driver),
                st.sampled_from(KINDS).map(of_kind),
            ),
            max_size=1,
        )
    )
    more: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        more["tolerations"] = [{"key": "k", "operator": "Exists"}]
    if draw(st.integers(0, 9)) == 0:
        more["capacity"] = {"requests": {"mem": str(draw(st.integers(1, 4)))}}
    if not sub and draw(st.integers(0, 9)) == 0:
        more["adminAccess"] = True
    return ask("gpu", *selectors, count=draw(st.sampled_from([1, 1, 1, 1, 2, 2, 3])), **more)


@st.composite
def requests(draw, name: str) -> Any:
    if draw(st.integers(0, 3)) == 0:
        subs = [draw(asks(sub=True)) | {"name": f"s{i}"} for i in range(draw(st.integers(1, 2)))]
        return {"name": name, "firstAvailable": subs}
    return {"name": name, "exactly": draw(asks())}


@st.composite
def claims(draw, name: str) -> Any:
    if draw(st.integers(0, 11)) == 0:
        # All stands alone: elsewhere a violated constraint is fatal before other choices are tried.
        everything = ask("gpu", *draw(st.sampled_from([[], [of_kind("x")]])), count="All")
        return claim(name, {"name": "r0", "exactly": everything})
    asked = [draw(requests(f"r{i}")) for i in range(draw(st.integers(1, 3)))]
    names = [item["name"] for item in asked]
    constraints = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        kind = draw(st.sampled_from(["matchAttribute", "matchAttribute", "distinctAttribute"]))
        attribute = draw(st.sampled_from(["a/label", "a/links", "b/label"]))
        rule: dict[str, Any] = {kind: attribute}
        if draw(st.booleans()):
            rule["requests"] = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        constraints.append(rule)
    return claim(name, *asked, constraints=constraints)


@st.composite
def tight_claims(draw) -> Any:
    """First what would take anything, then what is particular: the first choice is often wrong."""
    picky = draw(st.sampled_from([of_kind("x"), of_kind("y"), of_driver("b")]))
    tolerant = {"tolerations": [{"key": "k", "operator": "Exists"}]}
    asked = [
        {"name": "r0", "exactly": ask("gpu", count=draw(st.sampled_from([1, 1, 2])), **tolerant)},
        {"name": "r1", "exactly": ask("gpu", picky, **tolerant)},
    ]
    rule = draw(st.sampled_from([None, "a/label", "a/links"]))
    return claim("c0", *asked, match=rule)


@st.composite
def cases(draw) -> Case:
    """A problem of one pod on one node, some devices of which are in use."""
    slices = draw(pools())
    if draw(st.integers(0, 3)) == 0:
        asked = [draw(tight_claims())]
        for number, made in enumerate(slices[0]["spec"]["devices"]):
            made.setdefault("attributes", {})["kind"] = {"string": "y" if number else "x"}
    else:
        asked = [draw(claims(f"c{i}")) for i in range(draw(st.sampled_from([1, 1, 2])))]
    others = []
    for item in slices:
        for made in item["spec"].get("devices") or ():
            if draw(st.integers(0, 9)) == 0:
                others.append(_holding(draw, item["spec"], made, len(others)))
    return Case(claims=asked, slices=slices, others=others)


def _holding(draw, spec: Any, made: Any, number: int) -> Any:
    result: dict[str, Any] = {
        "request": "r", "driver": spec["driver"], "pool": "p", "device": made["name"],
    }  # fmt: skip
    if made.get("allowMultipleAllocations"):
        result["shareID"] = f"00000000-0000-4000-9000-{number:012x}"
        size = int(made["capacity"]["mem"]["value"])
        result["consumedCapacity"] = {"mem": str(draw(st.integers(1, size)))}
    allocation = {"devices": {"results": [result]}}
    return claim(f"other-{number}", status={"allocation": allocation})
