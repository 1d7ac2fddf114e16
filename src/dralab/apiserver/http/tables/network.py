"""Rows of the network, of configuration, and of events."""

from collections.abc import Mapping
from typing import Any

from dralab.apiserver.http.tables.ages import NONE, UNKNOWN, UNSET, Elapsed, joined, labels, since
from dralab.apiserver.http.tables.ages import selector as query
from dralab.apiserver.http.tables.printers import printer
from dralab.objects.metadata import spec_of, status_of
from dralab.values.json_types import JsonObject


def _inside(obj: JsonObject) -> str:
    spec = spec_of(obj)
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP") or NONE]
    return addresses[0] or NONE


def _ports(obj: JsonObject) -> str:
    return joined([_port(port) for port in spec_of(obj).get("ports") or ()], empty=NONE)


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


def _endpoints(obj: JsonObject) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or ()
        for address in subset.get("addresses") or ():
            ip = address.get("ip", "")
            shown = f"[{ip}]" if ":" in ip else ip
            found += [f"{shown}:{port['port']}" for port in ports] if ports else [ip]
    return joined(found, most=3, empty=NONE)


def _slice_ports(obj: JsonObject) -> str:
    ports = [str(port["port"]) if port.get("port") else "*" for port in obj.get("ports") or ()]
    return joined(ports, most=3, empty=UNSET)


def _slice_addresses(obj: JsonObject) -> str:
    addresses = [a for item in obj.get("endpoints") or () for a in item.get("addresses") or ()]
    return joined(addresses, most=3, empty=UNSET)


def _hosts(obj: JsonObject) -> str:
    rules = spec_of(obj).get("rules") or ()
    hosts = list(dict.fromkeys(each["host"] for each in rules if each.get("host")))
    return joined(hosts, most=3, empty="*")


def _parameters(obj: JsonObject) -> str:
    parameters = spec_of(obj).get("parameters")
    if not parameters:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


def _parent(obj: JsonObject) -> str:
    parent = spec_of(obj).get("parentRef") or {}
    where = parent.get("name", "")
    if parent.get("namespace"):
        where = f"{parent['namespace']}/{where}"
    group = f".{parent['group']}" if parent.get("group") else ""
    return f"{parent.get('resource', '')}{group}/{where}" if parent else NONE


def _first(obj: JsonObject) -> Elapsed | str:
    time = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp")
    return since(time or obj.get("eventTime"))


def _last(obj: JsonObject) -> Elapsed | str:
    if series := obj.get("series"):
        return since(series.get("lastObservedTime"))
    time = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    return since(time) if time else _first(obj)


def _count(obj: JsonObject) -> int:
    if series := obj.get("series"):
        return series.get("count", 0) or 1
    return obj.get("count") or obj.get("deprecatedCount") or 1


def _about(obj: JsonObject) -> JsonObject:
    return obj.get("involvedObject") or obj.get("regarding") or {}


def _object(obj: JsonObject) -> str:
    about = _about(obj)
    kind: str = about.get("kind", "").lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def _source(obj: JsonObject) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component: str = source.get("component") or _reporter(obj)
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def _reporter(obj: JsonObject) -> str:
    return obj.get("reportingComponent") or obj.get("reportingController") or ""


# Of both APIs of events.
EVENTS = printer(
    "Last Seen, Type: type, Reason: reason, Object, Subobject*, Source*, Message, First Seen*,"
    "Count*, Name*",
    _last,
    _object,
    lambda obj: _about(obj).get("fieldPath", ""),
    _source,
    lambda obj: (obj.get("message") or obj.get("note") or "").strip(),
    _first,
    _count,
)
NETWORK = "networking.k8s.io"
PRINTERS = {
    ("", "services"): printer(
        "Name, Type: spec.type, Cluster-IP, External-IP, Port(s), Age, Selector*",
        _inside,
        _outside,
        _ports,
        lambda obj: labels(spec_of(obj).get("selector")),
    ),
    ("", "endpoints"): printer("Name, Endpoints, Age", _endpoints),
    ("discovery.k8s.io", "endpointslices"): printer(
        "Name, AddressType: addressType, Ports, Endpoints, Age", _slice_ports, _slice_addresses
    ),
    (NETWORK, "ingresses"): printer(
        "Name, Class: spec.ingressClassName|<none>, Hosts, Address, Ports, Age",
        _hosts,
        lambda obj: joined(_balanced(obj)),
        lambda obj: "80, 443" if spec_of(obj).get("tls") else "80",
    ),
    (NETWORK, "ingressclasses"): printer(
        "Name, Controller: spec.controller, Parameters, Age", _parameters
    ),
    (NETWORK, "networkpolicies"): printer(
        "Name, Pod-Selector, Age", lambda obj: query(spec_of(obj).get("podSelector"))
    ),
    (NETWORK, "ipaddresses"): printer("Name, ParentRef", _parent),
    (NETWORK, "servicecidrs"): printer(
        "Name, CIDRs, Age", lambda obj: joined(spec_of(obj).get("cidrs") or ())
    ),
    ("", "configmaps"): printer(
        "Name, Data, Age", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    ),
    ("", "secrets"): printer("Name, Type: type, Data: #data, Age"),
    ("", "events"): EVENTS,
    ("events.k8s.io", "events"): EVENTS,
}
