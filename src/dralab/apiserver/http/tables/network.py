"""Rows of the network, of configuration, and of events."""

from collections.abc import Mapping, Sequence
from typing import Any

from dralab.apiserver.http.tables.ages import NONE, UNKNOWN, UNSET, age, joined, labels, since
from dralab.apiserver.http.tables.ages import selector as query
from dralab.apiserver.http.tables.printers import name_of, printer
from dralab.objects.metadata import spec_of, status_of
from dralab.values.json_types import JsonObject


def _service(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP") or NONE]
    return [
        name_of(obj),
        spec.get("type", ""),
        addresses[0] or NONE,
        _outside(obj),
        joined([_port(port) for port in spec.get("ports") or ()], empty=NONE),
        age(obj),
        labels(spec.get("selector")),
    ]


def _outside(obj: JsonObject) -> str:
    spec = spec_of(obj)
    given = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            found = _balanced(obj) + given
            return joined(found, empty="<pending>")
        case "ClusterIP" | "NodePort":
            return joined(given, empty=NONE)
        case _:
            return UNKNOWN


def _balanced(obj: JsonObject) -> list[str]:
    ingress = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
    return [item.get("ip") or item.get("hostname") or "" for item in ingress]


def _port(port: Mapping[str, Any]) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


def _endpoints(obj: JsonObject) -> Sequence[Any]:
    found = []
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or ()
        for address in subset.get("addresses") or ():
            ip = address.get("ip", "")
            shown = f"[{ip}]" if ":" in ip else ip
            found += [f"{shown}:{port['port']}" for port in ports] if ports else [ip]
    return [name_of(obj), joined(found, most=3, empty=NONE), age(obj)]


def _slice(obj: JsonObject) -> Sequence[Any]:
    ports = [str(port["port"]) if port.get("port") else "*" for port in obj.get("ports") or ()]
    addresses = [a for item in obj.get("endpoints") or () for a in item.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        joined(ports, most=3, empty=UNSET),
        joined(addresses, most=3, empty=UNSET),
        age(obj),
    ]


def _ingress(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    hosts = list(dict.fromkeys(r["host"] for r in spec.get("rules") or () if r.get("host")))
    return [
        name_of(obj),
        spec.get("ingressClassName") or NONE,
        joined(hosts, most=3, empty="*"),
        joined(_balanced(obj)),
        "80, 443" if spec.get("tls") else "80",
        age(obj),
    ]


def _ingress_class(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    parameters = spec.get("parameters")
    shown = NONE
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        shown = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"
    return [name_of(obj), spec.get("controller", ""), shown, age(obj)]


def _policy(obj: JsonObject) -> Sequence[Any]:
    return [name_of(obj), query(spec_of(obj).get("podSelector")), age(obj)]


def _address(obj: JsonObject) -> Sequence[Any]:
    parent = spec_of(obj).get("parentRef") or {}
    where = parent.get("name", "")
    if parent.get("namespace"):
        where = f"{parent['namespace']}/{where}"
    group = f".{parent['group']}" if parent.get("group") else ""
    return [name_of(obj), f"{parent.get('resource', '')}{group}/{where}" if parent else NONE]


def _range(obj: JsonObject) -> Sequence[Any]:
    return [name_of(obj), joined(spec_of(obj).get("cidrs") or ()), age(obj)]


def _config_map(obj: JsonObject) -> Sequence[Any]:
    return [
        name_of(obj),
        len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
        age(obj),
    ]


def _secret(obj: JsonObject) -> Sequence[Any]:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age(obj)]


def _event(obj: JsonObject) -> Sequence[Any]:
    """Return an event's cells, whichever of the two APIs it is shown in."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    first_time = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp")
    last_time = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    count = obj.get("count") or obj.get("deprecatedCount") or 0
    first = since(first_time or obj.get("eventTime"))
    last = since(last_time) if last_time else first
    series = obj.get("series")
    if series:
        last = since(series.get("lastObservedTime"))
        count = series.get("count", 0)
    kind = about.get("kind", "").lower()
    component = source.get("component") or _reporter(obj)
    host = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        first,
        count or 1,
        name_of(obj),
    ]


def _reporter(obj: JsonObject) -> str:
    return obj.get("reportingComponent") or obj.get("reportingController") or ""


EVENTS = printer(
    "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*",
    _event,
)
NETWORK = "networking.k8s.io"
PRINTERS = {
    ("", "services"): printer(
        "Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*", _service
    ),
    ("", "endpoints"): printer("Name, Endpoints, Age", _endpoints),
    ("discovery.k8s.io", "endpointslices"): printer(
        "Name, AddressType, Ports, Endpoints, Age", _slice
    ),
    (NETWORK, "ingresses"): printer("Name, Class, Hosts, Address, Ports, Age", _ingress),
    (NETWORK, "ingressclasses"): printer("Name, Controller, Parameters, Age", _ingress_class),
    (NETWORK, "networkpolicies"): printer("Name, Pod-Selector, Age", _policy),
    (NETWORK, "ipaddresses"): printer("Name, ParentRef", _address),
    (NETWORK, "servicecidrs"): printer("Name, CIDRs, Age", _range),
    ("", "configmaps"): printer("Name, Data, Age", _config_map),
    ("", "secrets"): printer("Name, Type, Data, Age", _secret),
    ("", "events"): EVENTS,
    ("events.k8s.io", "events"): EVENTS,
}
