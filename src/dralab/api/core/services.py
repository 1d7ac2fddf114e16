"""Services and what they lead to."""

from ipaddress import ip_address
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict

TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


class ServiceStrategy(Strategy):
    """Services; addresses and node ports are given out by admission."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        kind = spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        if spec["sessionAffinity"] == "ClientIP":
            config = spec.setdefault("sessionAffinityConfig", {})
            config.setdefault("clientIP", {}).setdefault("timeoutSeconds", 10800)
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in {None, 0, ""}:
                port["targetPort"] = port.get("port", 0)
        if kind in {"NodePort", "LoadBalancer"}:
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if kind in {"NodePort", "LoadBalancer", "ClusterIP"}:
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a load balancer."""
        value["status"] = {"loadBalancer": {}}

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Keep the addresses that a client left out: they were given out once."""
        before, after = old.get("spec") or {}, new["spec"]
        if after.get("type") == "ExternalName" or before.get("type") == "ExternalName":
            return
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not after.get(name) and before.get(name):
                after[name] = before[name]
        if after.get("type") in {"NodePort", "LoadBalancer"}:
            known = {
                (port.get("protocol"), port.get("port")): port.get("nodePort")
                for port in before.get("ports") or ()
            }
            for port in after.get("ports") or ():
                found = known.get((port.get("protocol"), port.get("port")))
                if not port.get("nodePort") and found:
                    port["nodePort"] = found

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value["spec"]
        errors: list[FieldError] = []
        kind = spec.get("type")
        if kind not in TYPES:
            errors.append(fields.not_supported("spec.type", kind, TYPES))
        ports = spec.get("ports") or ()
        if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
            errors.append(fields.required("spec.ports"))
        if kind == "ExternalName" and not spec.get("externalName"):
            errors.append(fields.required("spec.externalName"))
        seen: set[str] = set()
        for index, port in enumerate(ports):
            at = f"spec.ports[{index}]"
            name, number = port.get("name") or "", port.get("port", 0)
            if not name and len(ports) > 1:
                errors.append(fields.required(f"{at}.name"))
            elif name in seen:
                errors.append(fields.duplicate(f"{at}.name", name))
            seen.add(name)
            if not 0 < number < 65536:
                why = "must be between 1 and 65535, inclusive"
                errors.append(fields.invalid_value(f"{at}.port", number, why))
        address = spec.get("clusterIP")
        if address and address != "None" and not _is_address(address):
            why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            errors.append(fields.invalid_value("spec.clusterIPs[0]", address, why))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: an address stays."""
        errors = self.validate(new)
        before, after = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
        if before and after != before and new["spec"].get("type") != "ExternalName":
            errors.append(
                fields.invalid_value(
                    "spec.clusterIPs[0]", [after] if after else None, "may not change once set"
                )
            )
        return errors

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none (RFC 1035: it begins with a letter)."""
        problems = names.label_problems(name)
        if not problems and not name[0].isalpha():
            problems.append(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
                "with an alphabetic character, and end with an alphanumeric character (e.g. "
                "'my-name',  or 'abc-123', regex used for validation is "
                "'[a-z]([-a-z0-9]*[a-z0-9])?')"
            )
        return problems


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class EndpointsStrategy(Strategy):
    """Endpoints, the old form."""

    creates_on_update = True

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        for subset in value.get("subsets") or ():
            for port in subset.get("ports") or ():
                port.setdefault("protocol", "TCP")
