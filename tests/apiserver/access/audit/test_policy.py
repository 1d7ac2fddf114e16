"""Audit policies: which rule decides, and what a broken one is told."""

import pytest

from dralab.apiserver.access.audit.policy import AuditLevel, AuditPolicy, PolicyError
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.users import User


def policy(*rules, **fields):
    value = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules)}
    return AuditPolicy.read(value | fields)


def asked(**changes):
    known = {"verb": "get", "resource": "pods", "namespace": "default", "name": "web"}
    return Attributes(user=User(name="jane", groups=("team",)), **(known | changes))


PATH = Attributes(user=User(name="jane"), verb="get", path="/healthz/ping")


@pytest.mark.parametrize(
    ("rule", "wanted", "matches"),
    [
        ({}, asked(), True),
        ({"users": ["joe"]}, asked(), False),
        ({"users": ["joe", "jane"]}, asked(), True),
        ({"userGroups": ["team"]}, asked(), True),
        ({"userGroups": ["others"]}, asked(), False),
        ({"verbs": ["list"]}, asked(), False),
        ({"namespaces": ["kube-system"]}, asked(), False),
        ({"namespaces": [""]}, asked(namespace=""), True),
        ({"namespaces": ["default"]}, PATH, False),
        ({"resources": [{"group": ""}]}, asked(), True),
        ({"resources": [{"group": "apps"}]}, asked(), False),
        ({"resources": [{"resources": ["pods"]}]}, asked(subresource="log"), False),
        ({"resources": [{"resources": ["pods/log"]}]}, asked(subresource="log"), True),
        ({"resources": [{"resources": ["pods/*"]}]}, asked(subresource="log"), True),
        ({"resources": [{"resources": ["pods/*"]}]}, asked(), True),
        ({"resources": [{"resources": ["*/log"]}]}, asked(subresource="log"), True),
        ({"resources": [{"resources": ["*"]}]}, asked(subresource="log"), True),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["db"]}]}, asked(), False),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["web"]}]}, asked(), True),
        ({"nonResourceURLs": ["/healthz*"]}, PATH, True),
        ({"nonResourceURLs": ["/healthz"]}, PATH, False),
        ({"nonResourceURLs": ["*"]}, asked(), False),
    ],
)
def test_what_a_rule_matches(rule, wanted, matches):
    level = policy({"level": "Metadata", **rule}).recorded(wanted).level
    assert level is (AuditLevel.METADATA if matches else AuditLevel.NONE)


def test_the_first_rule_decides():
    found = policy({"level": "None", "verbs": ["get"]}, {"level": "RequestResponse"})
    assert found.recorded(asked()).level is AuditLevel.NONE
    assert found.recorded(asked(verb="list")).level is AuditLevel.REQUEST_RESPONSE


def test_stages_add_up_and_managed_fields_are_the_rules_own():
    found = policy(
        {"level": "Request", "omitStages": ["Panic"], "omitManagedFields": False},
        omitStages=["RequestReceived"],
        omitManagedFields=True,
    ).recorded(asked())
    assert found.omit_stages == {"Panic", "RequestReceived"}
    assert not found.omit_managed_fields


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Pod"}, "must be a Policy of audit.k8s.io/v1, not 'Pod'"),
        ({"rules": []}, "rules: must be a list with at least one rule"),
        ({"rules": [{"level": "All"}]}, r"rules\[0\].level: 'All' must be one of None, Metadata"),
        ({"rules": [{"level": "None", "verb": ["get"]}]}, r"rules\[0\].verb: unknown field"),
        ({"rules": [{"level": "None", "users": "joe"}]}, r"rules\[0\].users: must be a list"),
        ({"omitStages": ["Received"]}, "omitStages: 'Received' must be one of RequestReceived"),
        (
            {"rules": [{"level": "None", "nonResourceURLs": ["healthz"]}]},
            r"nonResourceURLs\[0\]: 'healthz' must be `\*` or begin with `/`",
        ),
        (
            {"rules": [{"level": "None", "nonResourceURLs": ["/x"], "namespaces": ["a"]}]},
            "cannot apply to both regular resources and non-resource URLs",
        ),
        (
            {"rules": [{"level": "None", "resources": [{"resourceNames": ["a"]}]}]},
            "requires at least one resource",
        ),
        ({"rules": [{"level": "None", "omitManagedFields": "no"}]}, "must be true or false"),
    ],
)
def test_a_broken_policy_is_told_where(change, message):
    value = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}
    with pytest.raises(PolicyError, match=message):
        AuditPolicy.read(value | change)


def test_files_are_read_with_their_name_in_every_error(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    assert AuditPolicy.read_file(file).recorded(asked()).level is AuditLevel.METADATA
    file.write_text("rules: [")
    with pytest.raises(PolicyError, match=str(file)):
        AuditPolicy.read_file(file)
    with pytest.raises(PolicyError, match="No such file"):
        AuditPolicy.read_file(tmp_path / "none.yaml")
