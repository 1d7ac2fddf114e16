"""Pods act as a service account, and find its token in a volume."""

import pytest

from apiserver.verbs.asking import Asked
from dralab.apiserver.verbs.assembly import built_in_admission

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture
def ask():
    return Asked(admission=built_in_admission(mount_tokens=True))


def pod(name="p", **spec):
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"metadata": {"name": name}, "spec": spec}


def made(ask, *, url=PODS, **spec):
    status, answer = ask("POST", url, pod(**spec))
    assert status == 201, answer
    return answer["spec"]


def test_a_pod_gets_the_token_of_the_default_account(ask):
    spec = made(ask, initContainers=[{"name": "i", "image": "i"}])
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert len(volume["name"]) == len("kube-api-access-") + 5
    assert volume["projected"] == {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "namespace",
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        }
                    ]
                }
            },
        ],
    }
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["volumeMounts"] == [
            {"name": volume["name"], "readOnly": True, "mountPath": PATH}
        ]


def test_the_default_account_of_a_new_namespace_is_there_when_it_is_needed(ask):
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    url = "/api/v1/namespaces/n"
    assert ask("POST", f"{url}/pods?dryRun=All", pod())[0] == 201
    assert ask("GET", f"{url}/serviceaccounts/default")[0] == 404, "a dry run makes nothing"
    made(ask, url=f"{url}/pods")
    assert ask("GET", f"{url}/serviceaccounts/default")[0] == 200


def test_an_account_that_is_absent_is_refused(ask):
    status, answer = ask("POST", PODS, pod(serviceAccountName="absent"))
    assert (status, answer["message"]) == (
        403,
        'pods "p" is forbidden: error looking up service account default/absent: serviceaccount '
        '"absent" not found',
    )


@pytest.mark.parametrize(
    ("of_account", "of_pod", "mounted"),
    [
        (None, None, True),
        (False, None, False),
        (True, False, False),
        (False, True, True),
    ],
)
def test_a_pod_opts_out_before_its_account(ask, of_account, of_pod, mounted):
    account = {"metadata": {"name": "robot"}}
    if of_account is not None:
        account["automountServiceAccountToken"] = of_account
    ask("POST", ACCOUNTS, account)
    more = {} if of_pod is None else {"automountServiceAccountToken": of_pod}
    spec = made(ask, serviceAccountName="robot", **more)
    assert bool(spec.get("volumes")) == mounted
    assert bool(spec["containers"][0].get("volumeMounts")) == mounted


def test_what_a_pod_mounts_itself_stays(ask):
    own = {"name": "own", "emptyDir": {}}
    there = {"name": "a", "image": "i", "volumeMounts": [{"name": "own", "mountPath": PATH}]}
    spec = made(ask, containers=[there], volumes=[own])
    assert [each["name"] for each in spec["volumes"]] == ["own"]
    ask("DELETE", f"{PODS}/p")
    given = {"name": "kube-api-access-x", "emptyDir": {}}
    spec = made(ask, volumes=[given])
    assert [each["name"] for each in spec["volumes"]] == ["kube-api-access-x"]
    assert spec["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-x"


def test_the_account_brings_its_pull_secrets(ask):
    secrets = [{"name": "registry"}]
    ask("POST", ACCOUNTS, {"metadata": {"name": "robot"}, "imagePullSecrets": secrets})
    assert made(ask, serviceAccountName="robot")["imagePullSecrets"] == secrets
    ask("DELETE", f"{PODS}/p")
    own = [{"name": "own"}]
    assert made(ask, serviceAccountName="robot", imagePullSecrets=own)["imagePullSecrets"] == own


def test_without_tokens_a_pod_only_names_its_account():
    ask = Asked(admission=built_in_admission())
    spec = made(ask, serviceAccountName="absent")
    assert spec["serviceAccount"] == "absent"
    assert "volumes" not in spec
