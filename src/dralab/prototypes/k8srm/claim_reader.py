"""Claims of k8srm as claims of the allocation problem.

Every detail is a request. A number of devices that may vary becomes alternatives, the fewest
first; `oneOf` becomes alternatives in the order of priority; totals become constraints.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from dralab.allocation import problem as core
from dralab.prototypes.k8srm.claim_forms import NO_MAXIMUM
from dralab.prototypes.k8srm.expressions import K8srmExpression, K8srmExpressions
from dralab.prototypes.k8srm.model import ConfigRef, Detail, Instance, K8srmClaim, K8srmClass
from dralab.prototypes.placement import UnallocatableError
from dralab.prototypes.searching import ClaimInProblem
from dralab.values.json_types import JsonDict
from dralab.values.quantity import Number
from dralab.values.records import dataclass

# A detail without a class is of one of these: the blank keeps the names apart from DeviceClasses'.
ANY_CLASS: Final = "published device"
TYPE: Final = "{}-type device"
MANY = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedClaim(ClaimInProblem):
    """A claim, its form in the problem, and what its status will need.

    `totals` maps a request's alternative to the amounts asked of its devices together,
    `instances` to the instance that it is of; `configs` are copies of the class's and the claim's.
    """

    claim: K8srmClaim
    totals: Mapping[str, Mapping[str, Number]]
    instances: Mapping[str, str]
    class_configs: tuple[ConfigRef, ...]
    claim_configs: tuple[ConfigRef, ...]
    configs: tuple[Sequence[JsonDict], Sequence[JsonDict]] = ((), ())

    @property
    def is_allocated(self) -> bool:
        """Whether it has its devices already."""
        return self.claim.allocated


@dataclass(frozen=True, slots=True)
class Leaf:
    """A class without a selector: the devices that it accepts; `drivers` None: any driver.

    `device_type` is the one that it names, `types` are those that some driver handles.
    """

    drivers: frozenset[str] | None
    constraints: K8srmExpression | None
    device_type: str = ""
    types: tuple[str, ...] = ()

    def accepts(self, device: core.Device) -> bool:
        """Return whether a device is of the class."""
        if self.drivers is not None and device.driver not in self.drivers:
            return False
        return self.constraints is None or self.constraints.holds(device)

    def __str__(self) -> str:
        """Return what a device must have, in words."""
        asked = []
        if self.drivers:
            asked.append(f"driver {' or '.join(sorted(self.drivers))}")
        elif self.drivers is not None:
            known = f" (there are drivers for {', '.join(self.types)})" if self.types else ""
            asked.append(f'a driver for device type "{self.device_type}"{known}')
        if self.constraints is not None:
            asked.append(self.constraints.text)
        return " and ".join(asked) or "any device"


@dataclass(frozen=True, slots=True)
class ClassCondition:
    """A class as a selector: any of its leaves."""

    reads: frozenset[core.DevicePath]
    leaves: tuple[Leaf, ...]

    @property
    def text(self) -> str:
        """What the class requires of a device, in words."""
        return " or ".join(map(str, self.leaves)) or "no device: no class has its labels"

    def matches(self, device: core.Device) -> bool:
        """Return whether any leaf accepts a device."""
        return any(leaf.accepts(device) for leaf in self.leaves)


@dataclass(frozen=True, slots=True)
class ConstraintReader:
    """A claim's own expression as a selector; a device for which it fails is skipped."""

    text: str
    reads: frozenset[core.DevicePath]
    expression: K8srmExpression = field(compare=False)

    def matches(self, device: core.Device) -> bool:
        """Return whether the expression holds for a device."""
        return self.expression.holds(device)

    def with_text(self, text: str) -> "ConstraintReader":
        """Return another expression, whose failures are not recorded."""
        expression = K8srmExpressions().get(text)
        return ConstraintReader(text, expression.reads, expression)

    def place(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of an attribute: names have no domain."""
        return ("attributes", "", path[0]) if len(path) == 1 else path


class Classes:
    """The existing classes, and the devices that each accepts.

    `drivers` maps a driver to the device types that it handles. No node can use more than `most`
    devices: larger counts need not be tried. `absent` says why there is no class of a name.
    """

    def __init__(
        self,
        classes: Sequence[K8srmClass],
        drivers: Mapping[str, tuple[str, ...]],
        expressions: K8srmExpressions,
        most: int = MANY,
        absent: Callable[[str], str] = 'DeviceClass "{}" does not exist'.format,
    ) -> None:
        self.absent = absent
        self.most = most
        self.by_name = {each.name: each for each in classes}
        self.drivers = drivers
        self.expressions = expressions
        self.everything = (
            {ANY_CLASS: core.DeviceClass(name=ANY_CLASS)}
            | {
                name: core.DeviceClass(name=name, selectors=self.selectors(self.leaves(each)))
                for name, each in self.by_name.items()
            }
            | {
                name: core.DeviceClass(name=name, selectors=self.selectors(leaves))
                for name, leaves in self._types().items()
            }
        )

    def asked(self, claim: K8srmClaim, item: JsonDict) -> AskedClaim:
        """Return a claim in the problem's form; UnallocatableError if it cannot be met."""
        if not claim.spec.instances:
            raise UnallocatableError(f"claim {claim}: it requests nothing")
        writer = _Writer(self, claim)
        for instance in claim.spec.instances:
            writer.instance(instance)
        rules = [
            core.Constraint("match", name, written="spec.matchAttributes")
            for name in claim.spec.match
        ]
        rules += [
            core.Constraint("distinct", name, written="spec.distinctAttributes")
            for name in claim.spec.distinct
        ]
        return AskedClaim(
            claim=claim,
            wanted=core.Claim(
                name=claim.name,
                namespace=claim.namespace,
                requests=tuple(writer.requests),
                constraints=(*rules, *writer.constraints),
                limit=MANY,
            ),
            totals=writer.totals,
            instances=writer.instances,
            class_configs=tuple(dict.fromkeys(writer.class_configs)),
            claim_configs=tuple(writer.claim_configs),
            item=item,
        )

    def leaves(self, each: K8srmClass) -> Iterator[K8srmClass]:
        """Yield the classes without a selector that a class stands for."""
        if each.selector is None:
            yield each
            return
        for other in self.by_name.values():
            if other.selector is None and each.selector.accepts(other.labels):
                yield other

    def of_type(self, device_type: str) -> list[K8srmClass]:
        """Return the classes of a device type (stage K3).

        Beside ordinary classes those with administrative access do not count.
        """
        found = [each for each in self.by_name.values() if each.device_type == device_type]
        return [each for each in found if not each.admin] or found

    def is_admin(self, detail: Detail) -> bool:
        """Return whether a detail, or every class that it means, has administrative access."""
        leaves: list[K8srmClass] = []
        if detail.class_name in self.by_name:
            leaves = list(self.leaves(self.by_name[detail.class_name]))
        elif detail.device_type:
            leaves = self.of_type(detail.device_type)
        return detail.admin or (bool(leaves) and all(leaf.admin for leaf in leaves))

    def with_access(self, detail: Detail) -> Detail:
        """Return a detail with the access of its class.

        A detail's own adminAccess (K4) gives everything, whatever the amounts. A class's (K3) only
        makes devices in use count: a number that the claim states holds.
        """
        if not self.is_admin(detail):
            return detail
        if detail.counted and not detail.admin:
            return replace(detail, admin=True)
        return replace(detail, admin=True, everything=True, minimum=1, maximum=None, totals={})

    def _types(self) -> dict[str, list[K8srmClass]]:
        types = {each.device_type for each in self.by_name.values() if each.device_type}
        return {TYPE.format(name): self.of_type(name) for name in sorted(types)}

    def selectors(self, classes: Iterable[K8srmClass]) -> tuple[core.DeviceSelector, ...]:
        """Return the requirements of some leaf classes.

        The expression of a class that is alone is a selector of its own: it can be explained.
        """
        leaves = list(classes)
        if len(leaves) != 1 or not leaves[0].constraints:
            return (self.condition(leaves),)
        [only] = leaves
        expression = self.expressions.get(only.constraints)
        own = ConstraintReader(only.constraints, expression.reads, expression)
        return (self.condition([replace(only, constraints="")]), own)

    def condition(self, classes: Iterable[K8srmClass]) -> ClassCondition:
        """Return the selector of some leaf classes."""
        types = tuple(sorted({kind for kinds in self.drivers.values() for kind in kinds}))
        leaves = tuple(
            Leaf(
                self.drivers_of(each),
                self.expressions.get(each.constraints) if each.constraints else None,
                each.device_type,
                types,
            )
            for each in classes
        )
        reads: frozenset[core.DevicePath] = frozenset({("driver",)})
        for leaf in leaves:
            if leaf.constraints is not None:
                reads |= leaf.constraints.reads
        return ClassCondition(reads, leaves)

    def drivers_of(self, each: K8srmClass) -> frozenset[str] | None:
        """Return the drivers that serve a leaf class; None: any."""
        if each.driver:
            return frozenset({each.driver})
        if each.device_type:
            return frozenset(
                name for name, types in self.drivers.items() if each.device_type in types
            )
        return None


class _Writer:
    """Collects the requests and constraints of one claim."""

    def __init__(self, classes: Classes, claim: K8srmClaim) -> None:
        self.classes = classes
        self.claim = claim
        self.requests: list[core.Request] = []
        self.constraints: list[core.Constraint] = []
        self.totals: dict[str, Mapping[str, Number]] = {}
        self.instances: dict[str, str] = {}
        self.class_configs: list[ConfigRef] = []
        self.claim_configs: list[ConfigRef] = []

    def instance(self, instance: Instance) -> None:
        """Add a request for every detail of allOf, and one for oneOf.

        Requests are called like the instance, and where it has several, like its field too.
        """
        name, several = instance.name, len(instance.all_of) + bool(instance.one_of) > 1
        for number, detail in enumerate(instance.all_of):
            self.request(f"{name}.allOf[{number}]" if several else name, [detail], name)
        if instance.one_of:
            self.request(f"{name}.oneOf" if several else name, instance.one_of, name)

    def request(self, name: str, details: Sequence[Detail], instance: str) -> None:
        """Add one request; more than one detail, or a range of counts, makes alternatives."""
        subrequests: list[core.SubRequest] = []
        for rank, written in enumerate(details):
            detail = self.classes.with_access(written)
            least, most = self.bounds(detail)
            # More devices than the least help only where their resources are added up.
            most = max(least, min(most, self.classes.most)) if detail.totals else least
            counts = range(least, most + 1)
            for count in counts:
                way = f"oneOf[{rank}]" if len(details) > 1 else ""
                way += f"x{count}" if len(counts) > 1 else ""
                way = f"{name}/{way}" if way else name
                self.instances[way] = instance
                subrequests.append(self.subrequest(way, detail, count))
        self.requests.append(
            core.Request(
                name=name, subrequests=tuple(subrequests), prioritized=len(subrequests) > 1
            )
        )

    def subrequest(self, name: str, detail: Detail, count: int) -> core.SubRequest:
        """Return one way to meet a detail, and note its rules."""
        leaves, match = self.meaning(detail)
        covers = (name,)
        written = detail.written
        for attribute in dict.fromkeys((*match, *detail.match)):
            path = written.get("match", "")
            self.constraints.append(core.Constraint("match", attribute, covers, written=path))
        for attribute in detail.distinct:
            path = written.get("distinct", "")
            self.constraints.append(core.Constraint("distinct", attribute, covers, written=path))
        for resource, amount in detail.totals.items():
            path = f"{written['requests']}.{resource}" if written else ""
            self.constraints.append(core.Constraint("total", resource, covers, amount, path))
        self.totals[name] = detail.totals
        self.class_configs += [config for leaf in leaves for config in leaf.configs]
        self.claim_configs += [c for c in detail.configs if c not in self.claim_configs]
        paths = {part: written[part] for part in ("", "count", "most") if part in written}
        if detail.class_name and self.classes.by_name[detail.class_name].maximum is not None:
            paths.pop("most", "")
        selectors: list[core.DeviceSelector | None] = []
        if detail.driver:
            leaf = Leaf(frozenset({detail.driver}), None)
            reads: frozenset[core.DevicePath] = frozenset({("driver",)})
            selectors.append(ClassCondition(reads, (leaf,)))
        if detail.constraints:
            expression = self.classes.expressions.get(detail.constraints)
            paths[f"selectors[{len(selectors)}].cel.expression"] = written.get("constraints", "")
            selectors.append(ConstraintReader(detail.constraints, expression.reads, expression))
        type_name = TYPE.format(detail.device_type) if detail.device_type else ANY_CLASS
        return core.SubRequest(
            name=name,
            class_name=detail.class_name or type_name,
            selectors=tuple(selectors),
            mode="All" if detail.everything else "ExactCount",
            count=count,
            admin=True if detail.admin else None,
            written=paths,
        )

    def meaning(self, detail: Detail) -> tuple[list[K8srmClass], tuple[str, ...]]:
        """Return the leaf classes of a detail and the attributes that its class matches."""
        if detail.class_name:
            named = self.classes.by_name.get(detail.class_name)
            if named is None:
                absent = self.classes.absent(detail.class_name)
                raise UnallocatableError(f"claim {self.claim}: {absent}")
            leaves = list(self.classes.leaves(named))
            if detail.driver and named.driver and detail.driver != named.driver:
                raise UnallocatableError(
                    f'claim {self.claim}: driver "{detail.driver}" is not "{named.driver}", the '
                    f"driver of class {named.name}"
                )
            return leaves, named.match
        if detail.device_type:
            found = self.classes.of_type(detail.device_type)
            if not found:
                raise UnallocatableError(
                    f'claim {self.claim}: no DeviceClass has type "{detail.device_type}"'
                )
            return [leaf for each in found for leaf in self.classes.leaves(each)], ()
        return [], ()

    def bounds(self, detail: Detail) -> tuple[int, int]:
        """Return the least and the most devices of a detail, within its class's own bounds."""
        named = self.classes.by_name.get(detail.class_name)
        low, high = (named.minimum, named.maximum) if named else (1, None)
        least, most = max(detail.minimum, low), detail.maximum
        if most == NO_MAXIMUM and high is not None:
            most = max(least, high)
        if high is not None and (wanted := most or least) > high:
            raise UnallocatableError(
                f"claim {self.claim}: {wanted} devices are more than the {high} that class "
                f"{detail.class_name} allows"
            )
        if most is not None and most < least:
            raise UnallocatableError(
                f"claim {self.claim}: at most {most} devices are fewer than the {least} that class "
                f"{detail.class_name} asks for"
            )
        return least, least if most is None else most
