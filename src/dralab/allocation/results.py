"""From chosen devices to allocations: what results copy, which configurations, which nodes.

Source of the rules: the allocator of k8s.io/dynamic-resource-allocation.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dralab.allocation.outcome import Chosen, ChosenConfig, ClaimAllocation
from dralab.allocation.problem import Claim, Node
from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.eligibility import Eligibility
from dralab.allocation.search.node_devices import NodeDevices
from dralab.allocation.search.setup import PickedAlternative, SearchSetup

ShareIds = Callable[[], str]


def allocations(
    setup: SearchSetup, picked: Sequence[PickedAlternative], share_ids: ShareIds
) -> tuple[ClaimAllocation, ...]:
    """Return one allocation per claim; `share_ids` gives a fresh id for each share."""
    return tuple(
        _allocation(
            setup, claim, [each for each in picked if each.alternative.claim == position], share_ids
        )
        for position, claim in enumerate(setup.claims)
    )


def _allocation(
    setup: SearchSetup, claim: Claim, picked: Sequence[PickedAlternative], share_ids: ShareIds
) -> ClaimAllocation:
    return ClaimAllocation(
        claim=str(claim),
        chosen=tuple(
            chosen_device(
                setup.node_devices, setup.eligibility, each.alternative, number, share_ids
            )
            for each in picked
            for number in each.devices
        ),
        configs=tuple(configs_of(claim, picked)),
        node_selector=node_selector(setup.node_devices, picked),
    )


def chosen_device(
    node_devices: NodeDevices,
    eligibility: Eligibility,
    alternative: Alternative,
    number: int,
    share_ids: ShareIds,
) -> Chosen:
    """Return a device as the result of a request; `share_ids` is asked where it is shared."""
    offer = node_devices.offers[number]
    device = offer.device
    shared = bool(node_devices.shareable >> number & 1)
    binding = node_devices.features.binding_conditions
    amounts = eligibility.amounts(alternative, number) or ()
    return Chosen(
        request=alternative.name,
        device=offer.id,
        admin=alternative.admin,
        share=share_ids() if shared else None,
        consumed=tuple(
            (device.written(name), amount, item.text)
            for (name, item), amount in zip(device.capacity.items(), amounts, strict=False)
        )
        if shared
        else (),
        tolerations=alternative.subrequest.tolerations,
        binding_conditions=device.binding_conditions if binding else (),
        binding_failure_conditions=device.binding_failure_conditions if binding else (),
        skip_node_operations=offer.slice.skip_node_operations,
    )


def configs_of(claim: Claim, picked: Sequence[PickedAlternative]) -> Iterator[ChosenConfig]:
    """Yield the configurations of a claim: those of its classes first, then its own."""
    names = [each.alternative.name for each in picked]
    parents = {name.partition("/")[0] for name in names}
    users: dict[str, list[str]] = {}
    for each in picked:
        users.setdefault(each.alternative.device_class.name, []).append(each.alternative.name)
    classes = {each.alternative.device_class.name: each.alternative.device_class for each in picked}
    for name, device_class in classes.items():
        for body in device_class.configs:
            yield ChosenConfig("FromClass", _scope(users[name], names), body)
    for config in claim.configs:
        if not config.requests or any(
            request in names or request in parents for request in config.requests
        ):
            yield ChosenConfig("FromClaim", _scope(config.requests, names), config.body)


def _scope(requests: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the requests a configuration is for; none where it is for all of the claim."""
    if all(name in requests or name.partition("/")[0] in requests for name in names):
        return ()
    return tuple(requests)


def node_selector(
    node_devices: NodeDevices, picked: Sequence[PickedAlternative]
) -> dict[str, Any] | None:
    """Return the NodeSelector that the chosen devices imply, None if any node will do."""
    node = node_devices.view.node
    expressions: list[dict[str, Any]] = []
    fields: list[dict[str, Any]] = []
    seen: set[tuple[str, str, str, frozenset[str]]] = set()
    for each in picked:
        for number in each.devices:
            offer = node_devices.offers[number]
            node_scope = offer.slice.scope_of(offer.device)
            if node_scope.node or offer.device.binds_to_node:
                return only(node)
            if node_scope.selector is None:
                continue
            for entry in node_scope.selector.get("nodeSelectorTerms") or ():
                for kind, into in (("matchExpressions", expressions), ("matchFields", fields)):
                    for item in entry.get(kind) or ():
                        values = frozenset(item.get("values") or ())
                        key = (kind, item["key"], item["operator"], values)
                        if key not in seen:
                            seen.add(key)
                            into.append(dict(item))
    if not seen:
        return None
    found = {"matchExpressions": expressions, "matchFields": fields}
    return {"nodeSelectorTerms": [{kind: items for kind, items in found.items() if items}]}


def only(node: Node) -> dict[str, Any]:
    """Return the selector of one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}
