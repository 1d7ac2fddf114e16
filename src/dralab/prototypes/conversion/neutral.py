"""Classes, claims, pools and pods in a neutral form, independent of generations."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from dralab.allocation.problem import Attribute
from dralab.values import labels
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """A note about something that is lost or changed in a conversion.

    `lost`: the result means something else; `changed`: it means the same in other words.
    """

    level: Literal["lost", "changed"]
    object: str
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.object}: {self.field}" if self.field else self.object
        return f"{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class NeutralExpression:
    """A CEL text and the generation whose words it is in; `drivers`: whose devices it is for."""

    text: str
    dialect: str
    drivers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NeutralConfig:
    """Configuration: parameters for a driver, or (k8srm) an object that is referred to."""

    driver: str = ""
    parameters: Mapping[str, Any] | None = None
    reference: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutralClass:
    """A class; `drivers` empty: any. A group names its leaves by their labels or `members`."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    drivers: tuple[str, ...] = ()
    group: Mapping[str, Any] | None = None
    members: tuple[str, ...] = ()
    expressions: tuple[NeutralExpression, ...] = ()
    configs: tuple[NeutralConfig, ...] = ()

    @property
    def is_group(self) -> bool:
        """Whether it stands for other classes."""
        return self.group is not None or bool(self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to meet a request."""

    class_name: str = ""
    expressions: tuple[NeutralExpression, ...] = ()
    count: int = 1
    most: int | None = None
    totals: Mapping[str, str] = field(default_factory=dict)
    admin: bool = False
    everything: bool = False
    match: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()
    configs: tuple[NeutralConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutralRequest:
    """What containers refer to by a name; more than one option: the first that can be met."""

    name: str
    options: tuple[Option, ...]
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """match or distinct, on an attribute, for some requests (none: all)."""

    kind: Literal["match", "distinct"]
    attribute: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutralClaim:
    """A claim or, with `template`, what claims are made from."""

    name: str
    namespace: str
    template: bool = False
    requests: tuple[NeutralRequest, ...] = ()
    rules: tuple[Rule, ...] = ()
    configs: tuple[NeutralConfig, ...] = ()
    shareable: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutralDevice:
    """A device; `consumes` maps (set, counter) to amounts, `provides` what it has of its own."""

    name: str
    attributes: Mapping[str, Attribute]
    consumes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    provides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutralPool:
    """Devices of one driver; without a node they are attached over the network."""

    name: str
    driver: str
    node: str = ""
    sets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    devices: tuple[NeutralDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutralPodClaim:
    """How a pod gets devices: of an existing claim, a template, or (shorthand) a class."""

    name: str
    how: Literal["claim", "template", "class"]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutralPod:
    """A pod; `uses` maps a container to (entry, request) pairs, request "" meaning all."""

    item: JsonDict
    entries: tuple[NeutralPodClaim, ...]
    uses: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


Part = NeutralClass | NeutralClaim | NeutralPool | NeutralPod


@dataclass(slots=True)
class Scene:
    """All objects that were read, and the types of attributes.

    `source` is the generation whose words the input is in.
    """

    parts: list[Part] = field(default_factory=list)
    others: list[JsonDict] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    source: str = ""

    def attribute_types(self) -> dict[str, str]:
        """Return the types of attributes by bare name, as pools publish them."""
        return {
            name.rpartition("/")[2]: value.type
            for part in self.parts
            if isinstance(part, NeutralPool)
            for device in part.devices
            for name, value in device.attributes.items()
        }

    def drivers_of(self, class_name: str) -> tuple[str, ...]:
        """Return the drivers of a class, those of its leaves for a group."""
        classes = {p.name: p for p in self.parts if isinstance(p, NeutralClass)}
        found = classes.get(class_name)
        if found is None:
            return ()
        leaves = self.leaves(found) if found.is_group else [found]
        return tuple(dict.fromkeys(driver for leaf in leaves for driver in leaf.drivers))

    def leaves(self, group: NeutralClass) -> list[NeutralClass]:
        """Return the classes that a group stands for."""
        classes = [p for p in self.parts if isinstance(p, NeutralClass) and not p.is_group]
        if group.group is None:
            return [each for each in classes if each.name in group.members]
        selector = labels.from_mapping(group.group)
        return [each for each in classes if selector.accepts(each.labels)]
