"""What is in the volumes of a pod."""

import base64

import pytest

from dralab.node.container_environment import ConfigError
from dralab.node.volume_files import files_of
from dralab.runtime.resources import CONFIG_MAPS, NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from labs import Lab


@pytest.fixture
def client():
    client = Lab().client
    client.create(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}}, "default")
    data = {"key": base64.b64encode(b"\x00secret").decode()}
    client.create(SECRETS, {"metadata": {"name": "s"}, "data": data}, "default")
    client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, "default")
    return client


def files(client, volume):
    body = {
        "metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "serviceAccountName": "robot",
            "volumes": [{"name": "v", **volume}, {"name": "other", "emptyDir": {}}],
        },
    }
    pod = client.create(PODS, body, "default")
    assert files_of(client, pod, "other") == files_of(client, pod, "absent") == {}
    return contents(files_of(client, pod, "v"))


def contents(found):
    return {path: file.content for path, file in found.items()}


def test_config_maps_and_secrets_are_files(client):
    sources = [
        {"configMap": {"name": "m", "items": [{"key": "a", "path": "deep/a"}]}},
        {"secret": {"name": "s"}},
        {"configMap": {"name": "absent", "optional": True}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}},
                    {"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}},
                ]
            }
        },
    ]
    assert files(client, {"projected": {"sources": sources}}) == {
        "deep/a": b"1",
        "key": b"\x00secret",
        "ns": b"default",
        "app": b"web",
    }


def test_a_token_is_the_pods_own(client):
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    found = files(client, {"projected": {"sources": [source]}})
    user = client.api.resources.context.authentication.known(found["token"].decode(), ()).user
    assert user.name == "system:serviceaccount:default:robot"
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    client.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
    with pytest.raises(Exception, match="invalidated"):
        client.api.resources.context.authentication.known(found["token"].decode(), ())


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"configMap": {"name": "absent"}}, 'configmaps "absent" not found'),
        ({"secret": {"secretName": "absent"}}, 'secrets "absent" not found'),
        (
            {"configMap": {"name": "m", "items": [{"key": "x", "path": "x"}]}},
            "references non-existent config key: x",
        ),
    ],
)
def test_what_is_missing_is_named(client, volume, why):
    with pytest.raises(ConfigError, match=why):
        files(client, volume)


def test_the_downward_api_has_labels_and_amounts(client):
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1500m"}}}
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.annotations"}},
        {"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}},
        {"path": "milli", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
        {"path": "memory", "resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
        {"path": "none", "resourceFieldRef": {"resource": "requests.memory"}},
    ]
    for item in items[1:]:
        item["resourceFieldRef"]["containerName"] = "c"
    client.create(NODES, {"metadata": {"name": "n1"}, "status": {}})
    client.update(
        NODES,
        {"metadata": {"name": "n1"}, "status": {"allocatable": {"memory": "2Gi"}}},
        subresource="status",
    )
    body = {
        "metadata": {"name": "p", "annotations": {"b": "2", "a": 'x"y'}},
        "spec": {
            "containers": [container],
            "nodeName": "n1",
            "volumes": [{"name": "v", "downwardAPI": {"items": items}}],
        },
    }
    pod = client.create(PODS, body, "default")
    assert contents(files_of(client, pod, "v")) == {
        "labels": b'a="x\\"y"\nb="2"',
        "cpu": b"2",
        "milli": b"1500",
        "memory": b"2048",
        "none": b"0",
    }
