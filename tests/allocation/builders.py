"""A small language of allocation cases, without CEL: selectors are Python predicates."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from dralab.allocation.problem import (
    AllocationFeatures,
    Attribute,
    Capacity,
    Claim,
    Constraint,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceClass,
    DeviceId,
    DevicePath,
    DeviceSelectorError,
    InUse,
    Node,
    NodeScope,
    Problem,
    Request,
    RequestPolicy,
    ShareId,
    Slice,
    SubRequest,
)
from dralab.objects.device_taints import DeviceTaint, DeviceToleration

DRIVER = "d"
NODE = Node("n")


@dataclass(frozen=True)
class Where:
    """A selector from a predicate; `reads` are full attribute names."""

    text: str
    predicate: Callable[[Device], bool]
    names: tuple[str, ...] = ()

    @property
    def reads(self) -> frozenset[DevicePath]:
        return frozenset(("attributes", *name.split("/")) for name in self.names) or frozenset(
            {("driver",)}
        )

    def matches(self, device: Device) -> bool:
        return self.predicate(device)


def carries(name: str, value: object) -> Where:
    """Devices whose scalar attribute `d/name` has this value."""

    def check(device: Device) -> bool:
        found = device.attributes.get(f"{DRIVER}/{name}")
        return found is not None and found.values == (value,)

    return Where(f"{name} == {value!r}", check, (f"{DRIVER}/{name}",))


def demands(name: str, value: object) -> Where:
    """Like `carries`, but without an answer for devices without the attribute."""

    def check(device: Device) -> bool:
        found = device.attributes.get(f"{DRIVER}/{name}")
        if found is None:
            raise DeviceSelectorError(f"no such key: {name}", lacks_key=True)
        return found.values == (value,)

    return Where(f"device.{name} == {value!r}", check, (f"{DRIVER}/{name}",))


def attribute(value: object) -> Attribute:
    if isinstance(value, list):
        return Attribute("string" if isinstance(value[0], str) else "int", tuple(value), True)
    if isinstance(value, bool):
        return Attribute("bool", (value,))
    return Attribute("int" if isinstance(value, int) else "string", (value,))  # type: ignore[arg-type]


def device(
    name: str,
    *,
    driver: str = DRIVER,
    draws: object = None,
    taint: str = "",
    share: Mapping[str, int] | None = None,
    **attributes: object,
) -> Device:
    """A device; `draws` is {set: {counter: amount}}, `share` its capacities if it is shared."""
    consumes: dict[str, dict[str, int]] = draws or {}  # type: ignore[assignment]
    return Device(
        name=name,
        driver=driver,
        attributes={f"{driver}/{key}": attribute(value) for key, value in attributes.items()},
        consumes=tuple(CounterConsumption(key, value) for key, value in consumes.items()),
        taints=(DeviceTaint(taint, "", "NoSchedule"),) if taint else (),
        shareable=share is not None,
        capacity={
            f"{driver}/{key}": Capacity(value, str(value)) for key, value in (share or {}).items()
        },
        capacity_names={f"{driver}/{key}": key for key in (share or {})},
    )


def pool(
    *devices: Device,
    name: str = "p",
    node: str = "n",
    counters: Mapping[str, Mapping[str, int]] | None = None,
) -> tuple[Slice, ...]:
    """The slices of one pool on one node."""
    driver = devices[0].driver if devices else DRIVER
    count = 2 if counters else 1
    found = [
        Slice(
            name=f"{name}-a",
            driver=driver,
            pool=name,
            generation=1,
            slice_count=count,
            node_scope=NodeScope(node),
            devices=devices,
        )
    ]
    if counters:
        sets = tuple(CounterSet(key, value) for key, value in counters.items())
        found.append(
            Slice(
                name=f"{name}-b",
                driver=driver,
                pool=name,
                generation=1,
                slice_count=count,
                node_scope=NodeScope(node),
                counter_sets=sets,
            )
        )
    return tuple(found)


def exactly(
    name: str,
    *selectors: Where,
    count: int = 1,
    all: bool = False,
    admin: bool | None = None,
    tolerates: str = "",
    amount: Mapping[str, int] | None = None,
) -> SubRequest:
    return SubRequest(
        name=name,
        class_name="c",
        selectors=selectors,
        count=0 if all else count,
        mode="All" if all else "ExactCount",
        admin=admin,
        tolerations=(DeviceToleration(tolerates, "Exists"),) if tolerates else (),
        capacity=amount or {},
    )


def request(name: str, *selectors: Where, **options: object) -> Request:
    return Request(name=name, subrequests=(exactly(name, *selectors, **options),))  # type: ignore[arg-type]


def either(name: str, *subrequests: SubRequest) -> Request:
    """A request with alternatives, named by their short names."""
    from dataclasses import replace

    return Request(
        name=name,
        prioritized=True,
        subrequests=tuple(replace(each, name=f"{name}/{each.name}") for each in subrequests),
    )


def match(attr: str, *requests: str) -> Constraint:
    return Constraint("match", f"{DRIVER}/{attr}", requests)


def distinct(attr: str, *requests: str) -> Constraint:
    return Constraint("distinct", f"{DRIVER}/{attr}", requests)


def claim(name: str, *parts: Request | Constraint) -> Claim:
    return Claim(
        name=name,
        requests=tuple(x for x in parts if isinstance(x, Request)),
        constraints=tuple(x for x in parts if isinstance(x, Constraint)),
    )


def problem(
    slices: Iterable[Slice],
    *claims: Claim,
    used: Iterable[str] = (),
    pool_name: str = "p",
    features: AllocationFeatures | None = None,
    in_use: InUse | None = None,
) -> Problem:
    return Problem(
        claims=claims,
        classes={"c": DeviceClass(name="c")},
        slices=tuple(slices),
        in_use=in_use
        or InUse(exclusive=frozenset(DeviceId(DRIVER, pool_name, each) for each in used)),
        features=features or AllocationFeatures(),
    )


def random_problem(seed: int, *, size: int = 6) -> Problem:
    """A small problem with any mixture of features."""
    chance = Random(seed)
    flags = {
        flag: chance.random() < 0.4
        for flag in (
            "counters",
            "shared",
            "taints",
            "lists",
            "match",
            "distinct",
            "prioritized",
            "admin",
            "all",
            "groups",
            "policies",
        )
    }
    slices: list[Slice] = []
    held: list[DeviceId] = []
    shares: list[ShareId] = []
    consumed: dict[DeviceId, dict[str, int]] = {}
    for number in range(chance.choice((1, 1, 2))):
        name = f"p{number}"
        sets = (
            {f"s{i}": {"m": chance.randint(1, 4)} for i in range(chance.randint(1, 2))}
            if flags["counters"]
            else {}
        )
        devices = []
        for i in range(chance.randint(1, size)):
            draws: dict[str, dict[str, int]] = {}
            if sets and chance.random() < 0.8:
                for key in chance.sample(sorted(sets), chance.choice((1, 1, min(2, len(sets))))):
                    draws[key] = {"m": chance.randint(1, 3)}
            attributes: dict[str, object] = {"t": chance.choice("xyz"), "n": chance.randint(1, 3)}
            if flags["lists"] and chance.random() < 0.5:
                attributes["n"] = sorted({chance.randint(1, 3) for _ in range(2)})
            if chance.random() < 0.15:
                del attributes["n"]
            share = (
                {"c": chance.randint(1, 4)} if flags["shared"] and chance.random() < 0.5 else None
            )
            made = device(
                f"d{i}",
                draws=draws,
                taint="k" if flags["taints"] and chance.random() < 0.4 else "",
                share=share,
                **attributes,
            )
            if flags["groups"] and draws and chance.random() < 0.6:
                made = _with(
                    made,
                    consumes=tuple(
                        CounterConsumption(
                            x.counter_set,
                            x.counters,
                            frozenset(chance.sample("abc", chance.randint(1, 2))),
                        )
                        for x in made.consumes
                    ),
                )
            if share and flags["policies"] and chance.random() < 0.6:
                made = _with(
                    made,
                    capacity={
                        f"{DRIVER}/c": Capacity(
                            share["c"],
                            "",
                            RequestPolicy(default=1, least=1, step=chance.choice((None, 1, 2))),
                        )
                    },
                )
            devices.append(made)
            if chance.random() < 0.15:
                identity = DeviceId(DRIVER, name, made.name)
                if share:
                    shares.append(ShareId(identity, f"share-{i}"))
                    consumed[identity] = {"c": 1}
                else:
                    held.append(identity)
        slices += pool(*devices, name=name, counters=sets)
    claims = tuple(_random_claim(chance, f"c{i}", flags) for i in range(chance.choice((1, 1, 2))))
    return problem(
        slices,
        *claims,
        in_use=InUse(exclusive=frozenset(held), shares=frozenset(shares), consumed=consumed),
    )


def large_problem(seed: int, *, size: int) -> Problem:
    """One claim with many requests on many devices, again with any mixture of features."""
    chance = Random(seed)
    base = random_problem(seed, size=size)
    flags = {
        flag: chance.random() < 0.5
        for flag in ("shared", "match", "distinct", "prioritized", "admin", "all")
    }
    parts: list[Request | Constraint] = []
    names = [f"r{i}" for i in range(chance.randint(3, 8))]
    for name in names:
        if flags["prioritized"] and chance.random() < 0.5:
            parts.append(
                either(
                    name,
                    *(
                        _random_alternative(chance, f"a{i}", flags, chance.randint(1, 5))
                        for i in range(chance.randint(2, 4))
                    ),
                )
            )
        else:
            parts.append(
                Request(
                    name=name,
                    subrequests=(_random_alternative(chance, name, flags, chance.randint(1, 5)),),
                )
            )
    parts += [
        match(chance.choice("tn"), *chance.sample(names, chance.randint(0, 3)))
        for _ in range(chance.randint(0, 3) if flags["match"] else 0)
    ]
    if flags["distinct"]:
        parts.append(distinct(chance.choice("tn"), *chance.sample(names, 2)))
    return problem(base.slices, claim("c", *parts), in_use=base.in_use)


def _with(made: Device, **changes: object) -> Device:
    from dataclasses import replace

    return replace(made, **changes)  # type: ignore[arg-type]


def _random_alternative(
    chance: Random, name: str, flags: Mapping[str, bool], count: int
) -> SubRequest:
    selectors = chance.choice(
        ((), (), (carries("t", "x"),), (carries("t", "y"),), (carries("n", 1),))
    )
    return exactly(
        name,
        *selectors,
        count=count,
        all=flags["all"] and chance.random() < 0.15,
        admin=True if flags["admin"] and chance.random() < 0.2 else None,
        tolerates="k" if chance.random() < 0.5 else "",
        amount={"c": chance.randint(1, 2)} if flags["shared"] and chance.random() < 0.4 else None,
    )


def _random_claim(chance: Random, name: str, flags: Mapping[str, bool]) -> Claim:
    parts: list[Request | Constraint] = []
    names = [f"r{i}" for i in range(chance.randint(1, 3))]
    for each in names:
        if flags["prioritized"] and chance.random() < 0.5:
            parts.append(
                either(
                    each,
                    *(
                        _random_alternative(chance, f"a{i}", flags, chance.randint(1, 3))
                        for i in range(chance.randint(1, 3))
                    ),
                )
            )
        else:
            parts.append(
                Request(
                    name=each,
                    subrequests=(_random_alternative(chance, each, flags, chance.randint(1, 3)),),
                )
            )
    if flags["match"]:
        parts.append(
            match(chance.choice("tn"), *chance.sample(names, chance.randint(0, len(names))))
        )
        if chance.random() < 0.4:
            parts.append(
                match(chance.choice("tn"), *chance.sample(names, chance.randint(0, len(names))))
            )
    if flags["distinct"] and chance.random() < 0.5:
        parts.append(
            distinct(chance.choice("tn"), *chance.sample(names, chance.randint(0, len(names))))
        )
    return claim(name, *parts)
