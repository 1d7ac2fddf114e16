"""Which devices could serve which request on their own: selectors, taints, amounts.

Answers are cached, so a selector is evaluated once per device and request. `node_devices` and
`rules` handle what other choices leave of a device (counters, shared capacity, constraints).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dralab.allocation.problem import (
    Attribute,
    Device,
    DeviceSelector,
    DeviceSelectorError,
    Scalar,
)
from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.node_devices import NodeDevices, bits, mask_of
from dralab.values.quantity import Number

Values = frozenset[tuple[str, Scalar]]
HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check "
    "with has() for optional fields"
)
WHOLE: Final[tuple[Number, ...]] = ()


class SearchError(Exception):
    """The search cannot go on for this pod; the text is what Kubernetes reports."""


class DevicesByValue(dict[tuple[str, Scalar], int]):
    """The devices that carry each value of one attribute."""

    def __init__(self, by_value: Mapping[tuple[str, Scalar], int]) -> None:
        super().__init__(by_value)
        self.any = self.with_any_of(by_value)
        # Whether every device carries one value: no lists.
        self.single = sum(mask.bit_count() for mask in by_value.values()) == self.any.bit_count()

    def with_any_of(self, values: Iterable[tuple[str, Scalar]]) -> int:
        """Return the devices that carry at least one of these values."""
        mask = 0
        for value in values:
            mask |= self.get(value, 0)
        return mask


class SelectorAnswers:
    """What selectors say of the devices of a node, as bit sets: each device is asked about once."""

    def __init__(self, node_devices: NodeDevices) -> None:
        self._offers = node_devices.offers
        # Devices that may be refused although the selectors accept them.
        self.odd = node_devices.shareable | mask_of(
            [
                number
                for number, offer in enumerate(node_devices.offers)
                if not offer.here
                or offer.device.taints
                or (offer.device.consumes and not node_devices.features.partitionable_devices)
                or offer.slice.skip_node_operations
            ]
        )
        # By the identity of a selector, which is kept: who was asked about, and who is accepted.
        self._answers: dict[int, tuple[DeviceSelector, int, int]] = {}

    def accepted(self, selector: DeviceSelector, among: int) -> int:
        """Return the devices of a set that a selector accepts. DeviceSelectorError."""
        _, asked, accepted = self._answers.get(id(selector), (selector, 0, 0))
        if among & ~asked:
            for number in bits(among & ~asked):
                if selector.matches(self._offers[number].device):
                    accepted |= 1 << number
            self._answers[id(selector)] = (selector, asked | among, accepted)
        return accepted & among


class Eligibility:
    """The static part of every "may this device serve this request".

    `answers` may be shared with others that ask about the same devices.
    """

    def __init__(self, node_devices: NodeDevices, answers: SelectorAnswers | None = None) -> None:
        self.node_devices = node_devices
        self.features = node_devices.features
        self._answers_of = answers or SelectorAnswers(node_devices)
        self._selectable: dict[tuple[Alternative, int], bool] = {}
        self._accepts: dict[tuple[Alternative, int], bool] = {}
        self._amounts: dict[tuple[Alternative, int], tuple[Number, ...] | None] = {}
        self._values: dict[tuple[Alternative | None, int, str], Values | None] = {}
        self._carried: dict[tuple[Alternative, str], DevicesByValue] = {}
        # What searches work out about devices and counter groups, and can use again.
        self.served: dict[object, tuple[tuple[int, ...], ...] | None] = {}
        self.likeness: dict[int, object] = {}
        self.alike: dict[int, tuple[int, int, int]] = {}
        self._numbers: dict[object, int] = {}

    def selectable(self, alternative: Alternative, number: int) -> bool:
        """Return whether selectors accept a device that serves this node; SearchError likewise."""
        key = (alternative, number)
        known = self._selectable.get(key)
        if known is None:
            known = self._selectable[key] = self._select(alternative, number)
        return known

    def _select(self, alternative: Alternative, number: int) -> bool:
        offer = self.node_devices.offers[number]
        device = offer.device
        if not self.features.binding_conditions and device.binding_conditions:
            return False
        for where, index, selector in alternative.conditions:
            try:
                if not selector.matches(device):
                    return False
            except DeviceSelectorError as error:
                raise SearchError(selector_sentence(where, index, str(offer.id), error)) from error
        return offer.here

    def accepts(self, alternative: Alternative, number: int) -> bool:
        """Return whether a device could serve a request, whatever else is chosen."""
        key = (alternative, number)
        known = self._accepts.get(key)
        if known is None:
            known = self._accepts[key] = (
                self.selectable(alternative, number)
                and self.amounts(alternative, number) is not None
                and self.offered(number)
                and (
                    not self.features.device_taints or self.untolerated(alternative, number) is None
                )
            )
        return known

    def accepting(self, alternative: Alternative, among: int) -> int:
        """Return the devices of a set that `accepts` says yes to.

        DeviceSelectorError: a selector has no answer for one of them.
        """
        offers = self.node_devices.offers
        if not self.features.binding_conditions:
            among = mask_of(
                [each for each in bits(among) if not offers[each].device.binding_conditions]
            )
        for _, _, selector in alternative.conditions:
            among = self._answers_of.accepted(selector, among)
        # All others serve whatever is asked of no capacity.
        odd = among if alternative.subrequest.capacity else among & self._answers_of.odd
        return among & ~odd | mask_of(
            [
                number
                for number in bits(odd)
                if offers[number].here
                and self.amounts(alternative, number) is not None
                and self.offered(number)
                and (
                    not self.features.device_taints or self.untolerated(alternative, number) is None
                )
            ]
        )

    def offered(self, number: int) -> bool:
        """Return whether this cluster's features let a device be allocated at all."""
        offer = self.node_devices.offers[number]
        if offer.device.consumes and not self.features.partitionable_devices:
            return False
        return self.features.optional_node_operations or not offer.slice.skip_node_operations

    def untolerated(self, alternative: Alternative, number: int) -> int | None:
        """Return the position of the first taint that the request does not tolerate."""
        for position, taint in enumerate(self.node_devices.offers[number].device.taints):
            if taint.repels and not any(
                each.tolerates(taint) for each in alternative.subrequest.tolerations
            ):
                return position
        return None

    def amounts(self, alternative: Alternative, number: int) -> tuple[Number, ...] | None:
        """Return what a request takes of each capacity of a shared device.

        WHOLE for a device that it takes whole, None if the device has not what is asked.
        """
        if not self.features.consumable_capacity:
            return WHOLE
        key = (alternative, number)
        if key not in self._amounts:
            self._amounts[key] = self._measure(
                alternative, self.node_devices.offers[number].device, number
            )
        return self._amounts[key]

    def _measure(
        self, alternative: Alternative, device: Device, number: int
    ) -> tuple[Number, ...] | None:
        asked = alternative.subrequest.capacity
        if alternative.admin:
            # Admin access watches a device; it takes nothing (kubernetes#140729).
            return WHOLE
        shared = bool(self.node_devices.shareable >> number & 1)
        if not asked and not shared:
            return WHOLE
        known = {device.written(name): item for name, item in device.capacity.items()}
        if any(name not in known for name in asked):
            return None
        amounts: list[Number] = []
        fractional = self.features.fractional_ranges
        for name, item in known.items():
            want = asked.get(name)
            if want is None and not shared:
                continue
            amount = item.policy.amount(want, item.value, fractional=fractional)
            if amount is None or not 0 <= amount <= item.value:
                return None
            amounts.append(amount)
        return tuple(amounts) if shared else WHOLE

    def carried(self, alternative: Alternative, name: str, among: int) -> DevicesByValue:
        """Return the devices by their values of an attribute, for a request that these serve."""
        found = self._carried.get((alternative, name))
        if found is None:
            by_value: dict[tuple[str, Scalar], int] = {}
            for number in bits(among):
                for value in sorted(self.values(alternative, number, name) or (), key=repr):
                    by_value[value] = by_value.get(value, 0) | 1 << number
            found = self._carried[alternative, name] = DevicesByValue(by_value)
        return found

    def values(self, alternative: Alternative, number: int, name: str) -> Values | None:
        """Return the typed values that constraints see, None if the device has none.

        An attribute that the request derives hides the device's own (KEP-6080).
        """
        derived: Mapping[str, object] = alternative.subrequest.derived
        key = (alternative if derived else None, number, name)
        if key not in self._values:
            self._values[key] = self._look_up(alternative, number, name)
        return self._values[key]

    def numbered(self, value: object) -> int:
        """Return a small number that stands for a value, the same for equal ones."""
        return self._numbers.setdefault(value, len(self._numbers))

    def _look_up(self, alternative: Alternative, number: int, name: str) -> Values | None:
        offer = self.node_devices.offers[number]
        device = offer.device
        derivation = alternative.subrequest.derived.get(name)
        if derivation is not None:
            try:
                return self._set(derivation.value(device))
            except DeviceSelectorError as error:
                raise SearchError(
                    f"request {alternative.name}: derived attribute {name} on device {offer.id}: "
                    f"CEL runtime error: {error.message}"
                ) from error
        return self._set(device.attributes.get(name))

    def _set(self, attribute: Attribute | None) -> Values | None:
        if attribute is None or not attribute.type or not attribute.values:
            return None
        if attribute.listed and not self.features.list_attributes:
            return None
        return frozenset((attribute.type, value) for value in attribute.values)


def selector_sentence(where: str, index: int, device: str, error: DeviceSelectorError) -> str:
    """Return the sentence in which Kubernetes reports a selector without an answer."""
    if error.compiling:
        return f"{where}: selector #{index}: CEL compile error: {error.message}"
    hint = HINT if error.lacks_key else ""
    return (
        f"{where}: selector #{index} on device {device}: CEL runtime error: {error.message}{hint}"
    )
