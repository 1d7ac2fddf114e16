"""The contract of Kubernetes 1.27 to 1.30: drivers that announce themselves as `1.0.0`.

Their service is `v1alpha3.Node` (before 1.28 `v1alpha2.Node`, one claim a call). The kubelet tells
them what a claim's allocation says, and publishes the named resources that they list.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.contracts.plugin import ClaimRef, PreparedDevice, PrepareResult
from dralab.contracts.wire import OLD, PluginVersion
from dralab.values.json_types import JsonObject

SERVICE: Final = "v1alpha3.Node"
OLDEST_SERVICE: Final = "v1alpha2.Node"


def messages() -> Any:
    """Return the messages of both services."""
    from dralab.contracts._generated import node_v1alpha3_pb2

    return node_v1alpha3_pb2


class OldVersion(PluginVersion):
    """The version of the plugin service that `1.0.0` stands for."""

    __slots__ = ()

    @property
    def service(self) -> str:
        """The gRPC service."""
        return SERVICE

    def request(self, verb: str, claims: Sequence[ClaimRef]) -> Any:
        """Return a request about claims, with what their allocations say to the driver."""
        kind = getattr(self.messages, f"Node{verb}ResourcesRequest")
        return kind(claims=[self._claim(ref) for ref in claims])

    def _claim(self, ref: ClaimRef) -> Any:
        handle = ref.handle or {}
        data = handle.get("structuredData")
        return self.messages.Claim(
            namespace=ref.namespace,
            uid=ref.uid,
            name=ref.name,
            resource_handle=handle.get("data", ""),
            structured_resource_handle=[] if data is None else [_handle(data)],
        )

    def claims_of(self, request: Any) -> list[ClaimRef]:
        """Return the claims that a request is about."""
        return [ClaimRef(c.namespace, c.name, c.uid, _told(c)) for c in request.claims]

    def prepare_response(self, answers: Mapping[str, PrepareResult]) -> Any:
        """Return what a driver answers: CDI ids, each once."""
        found = self.messages.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            entry = found.claims[uid]
            entry.error = answer.error
            ids = [name for device in answer.devices for name in device.cdi_ids]
            entry.cdi_devices.extend(dict.fromkeys(ids))
        return found

    def prepared_of(self, response: Any) -> dict[str, PrepareResult]:
        """Return a driver's answer, by claim UID; all ids are as if of one device."""
        return {uid: prepared_of(answer) for uid, answer in sorted(response.claims.items())}


def prepared_of(answer: Any) -> PrepareResult:
    """Return the answer for one claim."""
    ids = tuple(answer.cdi_devices)
    device = PreparedDevice(requests=(), pool="", device="", cdi_ids=ids)
    return PrepareResult(error=answer.error, devices=(device,) if ids else ())


def version() -> OldVersion:
    """Return the version."""
    return OldVersion(OLD, messages())


def resources_response(models: Sequence[JsonObject]) -> Any:
    """Return what a driver lists; each model is `{"namedResources": {"instances": […]}}`."""
    found = messages().NodeListAndWatchResourcesResponse()
    for model in models:
        resources = found.resources.add().named_resources
        for each in model["namedResources"]["instances"]:
            instance = resources.instances.add(name=each["name"])
            for attribute in each.get("attributes") or ():
                _fill(instance.attributes.add(name=attribute["name"]), attribute)
    return found


def resources_of(response: Any) -> list[dict[str, Any]]:
    """Return what a driver lists, as resource.k8s.io/v1alpha2 has it."""
    return [
        {
            "namedResources": {
                "instances": [
                    {
                        "name": instance.name,
                        "attributes": [_attribute(each) for each in instance.attributes],
                    }
                    for instance in model.named_resources.instances
                ]
            }
        }
        for model in response.resources
    ]


def _fill(message: Any, attribute: JsonObject) -> None:
    value = message.attribute_value
    for name in ("bool", "int", "string", "version"):
        if attribute.get(name) is not None:
            setattr(value, name, attribute[name])
    if attribute.get("quantity") is not None:
        value.quantity.string = str(attribute["quantity"])
    if attribute.get("intSlice") is not None:
        value.int_slice.ints.extend(attribute["intSlice"]["ints"])
    if attribute.get("stringSlice") is not None:
        value.string_slice.strings.extend(attribute["stringSlice"]["strings"])


def _attribute(message: Any) -> dict[str, Any]:
    value = message.attribute_value
    found: dict[str, Any] = {"name": message.name}
    for name in ("bool", "int", "string", "version"):
        if value.HasField(name):
            found[name] = getattr(value, name)
    if value.HasField("quantity"):
        found["quantity"] = value.quantity.string
    if value.HasField("int_slice"):
        found["intSlice"] = {"ints": list(value.int_slice.ints)}
    if value.HasField("string_slice"):
        found["stringSlice"] = {"strings": list(value.string_slice.strings)}
    return found


def _handle(data: JsonObject) -> Any:
    found = messages().StructuredResourceHandle(node_name=data.get("nodeName", ""))
    _put(found.vendor_class_parameters, data.get("vendorClassParameters"))
    _put(found.vendor_claim_parameters, data.get("vendorClaimParameters"))
    for result in data.get("results") or ():
        entry = found.results.add()
        _put(entry.vendor_request_parameters, result.get("vendorRequestParameters"))
        if "namedResources" in result:
            named = entry.allocation_result_model.named_resources
            named.name = result["namedResources"]["name"]
    return found


def _told(claim: Any) -> JsonObject | None:
    """Return a claim's handle in the form of resource.k8s.io/v1alpha2; None without one."""
    for handle in claim.structured_resource_handle:
        data: dict[str, Any] = {"nodeName": handle.node_name, "results": []}
        _take(data, "vendorClassParameters", handle.vendor_class_parameters)
        _take(data, "vendorClaimParameters", handle.vendor_claim_parameters)
        for entry in handle.results:
            result: dict[str, Any] = {}
            _take(result, "vendorRequestParameters", entry.vendor_request_parameters)
            model = entry.allocation_result_model
            if model.HasField("named_resources"):
                result["namedResources"] = {"name": model.named_resources.name}
            data["results"].append(result)
        return {"structuredData": data}
    return {"data": claim.resource_handle} if claim.resource_handle else None


def _put(message: Any, value: Any) -> None:
    if value is not None:
        message.raw = json.dumps(value, separators=(",", ":")).encode()


def _take(into: dict[str, Any], name: str, message: Any) -> None:
    if message.raw:
        into[name] = json.loads(message.raw)
