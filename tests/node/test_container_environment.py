"""The variables, the command and the mounts of a container."""

import base64
import re

import pytest

from dralab.api.status import ApiError
from dralab.node.container_environment import (
    PATH,
    ConfigError,
    args_of,
    argv_of,
    config_of,
    expand,
    field_of,
)
from dralab.node.service_links import service_variables
from dralab.runtime.resources import CONFIG_MAPS, NODES, SECRETS, VOLUME_CLAIMS, VOLUMES

POD = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"b": "2", "a": 'x"é'},
        "annotations": {"k": "v"},
    },
    "spec": {"nodeName": "n1", "serviceAccountName": "me"},
    "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "hostIP": "h"},
}
STORED = {
    (CONFIG_MAPS, "m"): {"data": {"k": "$(A) $$", "l": "L"}},
    (SECRETS, "s"): {"type": "Opaque", "data": {"k": base64.b64encode(b"$(A) $$").decode()}},
    (CONFIG_MAPS, "l"): {"data": {"": "one"}},
    (CONFIG_MAPS, "empty"): {},
    (NODES, "n1"): {"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}},
    (VOLUME_CLAIMS, "c"): {"spec": {"volumeName": "v"}},
    (VOLUME_CLAIMS, "p-own"): {"spec": {"volumeName": "w"}},
    (VOLUME_CLAIMS, "unbound"): {"spec": {}},
    (VOLUMES, "v"): {"spec": {"local": {"path": "/local"}}},
    (VOLUMES, "w"): {"spec": {"csi": {}}},
}


class Store:
    def get(self, resource, name, namespace=""):
        assert namespace == ("" if resource in {NODES, VOLUMES} else "ns")
        if name == "secret-of-others":
            raise ApiError.forbidden(resource.plural, name, "no")
        try:
            return STORED[resource, name]
        except KeyError:
            raise ApiError.not_found(resource.plural, name) from None


def variables(*env, pod=POD, **container):
    found = config_of(Store(), pod, {"env": list(env), **container}).env
    return {name: value for name, value in found.items() if name not in {"PATH", "HOSTNAME"}}


def source(**fields):
    return {"name": "X", "valueFrom": fields}


def key(name="m", key="k", **more):
    return {"name": name, "key": key, **more}


def test_each_container_has_a_path_and_a_host_name():
    assert config_of(Store(), POD, {}).env == {"PATH": PATH, "HOSTNAME": "p"}
    named = {**POD, "spec": {"hostname": "h"}}
    assert config_of(Store(), named, {"env": [{"name": "PATH"}]}).env == {
        "PATH": "", "HOSTNAME": "h"
    }  # fmt: skip


def test_variables_may_name_those_before_them():
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)$(L)"}]
    env += [{"name": "C", "value": "$(B) $$(A) $"}]
    assert variables(*env, envFrom=[{"prefix": "L", "configMapRef": {"name": "l"}}]) == {
        "A": "1", "B": "1$(C)one", "C": "1$(C)one $(A) $", "L": "one"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"configMapKeyRef": key()}, "$(A) $$"),  # not expanded
        ({"secretKeyRef": key("s")}, "$(A) $$"),
        ({"configMapKeyRef": key("no", optional=True)}, None),
        ({"configMapKeyRef": key(key="no", optional=True)}, None),
        ({"secretKeyRef": key("s", "no", optional=True)}, None),
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "p"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500"),
        ({"resourceFieldRef": {"resource": "requests.cpu"}}, "0"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}}, "8"),
        ({"resourceFieldRef": {"resource": "requests.memory", "divisor": "0"}}, "0"),
        ({}, ""),
    ],
)
def test_variables_come_from_elsewhere(fields, value):
    limits = {"resources": {"limits": {"cpu": "1500m"}}}
    assert variables(source(**fields), **limits).get("X") == value


def test_a_limit_is_nothing_without_a_node():
    ref = source(resourceFieldRef={"resource": "limits.memory"})
    assert variables(ref, pod={**POD, "spec": {}}) == {"X": "0"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"configMapKeyRef": key(key="no")}, "couldn't find key no in ConfigMap ns/m"),
        ({"secretKeyRef": key("s", "no")}, "couldn't find key no in Secret ns/s"),
        ({"configMapKeyRef": key("no")}, 'configmaps "no" not found'),
        ({"secretKeyRef": key("secret-of-others", optional=True)}, "no"),
        ({"fieldRef": {"fieldPath": "spec.containers"}}, "unsupported fieldPath: spec.containers"),
    ],
)
def test_what_is_missing_is_named(fields, why):
    with pytest.raises(ConfigError, match=why.replace(".", r"\.")):
        variables(source(**fields))


def test_all_of_a_map_becomes_variables():
    given = [
        {"configMapRef": {"name": "m"}},
        {"prefix": "S_", "secretRef": {"name": "s"}},
        {"configMapRef": {"name": "no", "optional": True}},
        {"configMapRef": {"name": "empty"}},
        {},
    ]
    env = [{"name": "l", "value": "$(k)"}]
    assert variables(*env, envFrom=given) == {"k": "$(A) $$", "l": "$(A) $$", "S_k": "$(A) $$"}
    with pytest.raises(ConfigError, match='configmaps "no" not found'):
        variables(envFrom=[{"configMapRef": {"name": "no"}}])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "me"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1,::1"),
        ("status.hostIP", "h"),
        ("status.hostIPs", "h"),
        ("metadata.labels", 'a="x\\"é"\nb="2"'),
        ("metadata.labels['b']", "2"),
        ("metadata.labels['c']", ""),
        ("metadata.annotations['k']", "v"),
    ],
)
def test_what_field_paths_mean(path, value):
    assert field_of(POD, path) == value


def test_a_pod_without_labels_has_none_to_tell():
    assert [
        field_of({"metadata": {"name": "p"}}, path)
        for path in ("metadata.labels", "metadata.annotations", "metadata.labels['a']")
    ] == ["", "", ""]


def test_the_command_and_its_arguments_are_expanded():
    container = {"command": ["run", "$(A)"], "args": ["$(B)", "$$(A)"]}
    assert argv_of(container, {"A": "1"}) == ["run", "1", "$(B)", "$(A)"]
    assert args_of(container, {"A": "1"}) == ["$(B)", "$(A)"]
    assert argv_of({}, {}) == args_of({}, {}) == []
    assert expand("a$b $(A", {"A": "1"}) == "a$b $(A"


def test_mounts_are_of_this_machine_where_volumes_are():
    volumes = [
        {"name": "host", "hostPath": {"path": "/host"}},
        {"name": "claimed", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "own", "ephemeral": {}},
        {"name": "empty", "emptyDir": {"medium": "Memory"}},
        {"name": "config", "configMap": {"name": "m"}},
    ]
    mounts = [
        {"name": "host", "mountPath": "/a", "readOnly": True, "subPath": "s"},
        *({"name": name, "mountPath": f"/{name}"} for name in ("claimed", "own", "empty")),
        {"name": "config", "mountPath": "/config", "subPathExpr": "$(N)/x"},
    ]
    pod = {**POD, "spec": {"volumes": volumes}}
    pod["spec"]["volumes"][2]["ephemeral"] = {"volumeClaimTemplate": {}}
    found = config_of(
        Store(), pod, {"volumeMounts": mounts, "env": [{"name": "N", "value": "1"}]}
    ).mounts
    assert [tuple(each.values()) for each in found] == [
        ("/host", "/a", "host", True, "s", False),
        ("/local", "/claimed", "claimed", False, "", False),
        ("", "/own", "own", False, "", False),
        ("", "/empty", "empty", False, "", True),
        ("", "/config", "config", True, "1/x", False),
    ]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("$(UP)", "unable to provision SubPath `..`: must not contain '..'"),
        ("$(ROOT)x", "error SubPath `/tmp/x` must not be an absolute path"),
        ("$(NO)/$(ALSO)", "missing value for ALSO, NO"),
    ],
)
def test_a_part_of_a_volume_stays_in_it(wanted, why):
    env = [{"name": "UP", "value": ".."}, {"name": "ROOT", "value": "/tmp/"}]  # noqa: S108
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": wanted}
    pod = {**POD, "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    with pytest.raises(ConfigError, match=re.escape(why)):
        config_of(Store(), pod, {"volumeMounts": [mount], "env": env})


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ("unbound", 'persistentvolumeclaim "unbound" is not bound'),
        ("no", 'persistentvolumeclaims "no" not found'),
    ],
)
def test_a_claim_without_a_volume_is_named(claim, why):
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    with pytest.raises(ConfigError, match=why):
        config_of(Store(), {**POD, "spec": {"volumes": [volume]}}, {})


def service(name, namespace="ns", address="10.0.0.9", **port):
    ports = [
        {"port": 80, "protocol": "TCP", **port},
        {"port": 53, "protocol": "UDP", "name": "q-a"},
    ]
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": address, "ports": ports},
    }


def test_a_container_is_told_of_the_services_of_its_namespace():
    inside = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {}}
    others = [
        service("far", "other"),
        service("none", address="None"),
        service("external", address=""),
    ]
    assert service_variables([service("my-web"), *others], inside) == {
        "MY_WEB_SERVICE_HOST": "10.0.0.9",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_Q_A": "53",
        "MY_WEB_PORT": "tcp://10.0.0.9:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.0.0.9:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.0.0.9",
        "MY_WEB_PORT_53_UDP": "udp://10.0.0.9:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "10.0.0.9",
    }
    assert (
        service_variables([service("my-web")], {**inside, "spec": {"enableServiceLinks": False}})
        == {}
    )
    six = service_variables([service("six", address="fd00::1")], inside)
    assert six["SIX_PORT"] == "tcp://[fd00::1]:80"


def test_what_a_container_names_itself_goes_before_the_services():
    links = {"WEB_PORT": "tcp://10.0.0.9:80", "WEB_SERVICE_HOST": "10.0.0.9"}
    env = [
        {"name": "WEB_PORT", "value": "own"},
        {"name": "URL", "value": "http://$(WEB_SERVICE_HOST)"},
    ]
    inside = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {}}
    found = config_of(None, inside, {"name": "c", "env": env}, links).env
    assert (found["WEB_PORT"], found["URL"]) == ("own", "http://10.0.0.9")
