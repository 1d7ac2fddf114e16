"""To which flow and level a request belongs."""

import pytest

from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.fairness import flow_control
from dralab.apiserver.access.fairness.flow_control import LEVELS, SCHEMAS, FlowControl
from dralab.apiserver.access.users import User, service_account
from dralab.apiserver.storage import Key

EVERYTHING = {
    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
    "clusterScope": True, "namespaces": ["*"],
}  # fmt: skip
PATHS = {"verbs": ["*"], "nonResourceURLs": ["*"]}


def level(name, shares=10, queuing=None):
    response = {"type": "Queue", "queuing": queuing} if queuing else {"type": "Reject"}
    limited = {"nominalConcurrencyShares": shares, "limitResponse": response}
    return {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}}


def schema(name, subject, *, precedence=500, level="work", by="ByUser", resource=EVERYTHING):
    rule = {"subjects": [subject], "resourceRules": [resource], "nonResourceRules": [PATHS]}
    spec = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    }
    if by:
        spec["distinguisherMethod"] = {"type": by}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


def group(name):
    return {"kind": "Group", "group": {"name": name}}


def asked(user="jane", groups=("team",), **changes):
    known = {"verb": "list", "resource": "pods", "namespace": "default"} | changes
    return Attributes(user=User(name=user, groups=groups), **known)


def control(*schemas, levels=()):
    found = FlowControl()
    for one in schemas:
        found.put(Key(SCHEMAS, "", one["metadata"]["name"]), one)
    for one in (level("work"), *levels):
        found.put(Key(LEVELS, "", one["metadata"]["name"]), one)
    return found


def test_the_first_schema_by_precedence_and_name_decides():
    flows = control(
        schema("b", group("team"), precedence=10),
        schema("z", group("team"), precedence=5, level="missing"),
        schema("a", group("team"), precedence=10),
    )
    assert flows.schemas.flow_of(asked()).schema_uid == "uid-a"


def test_users_are_told_apart_where_the_schema_says_so():
    flows = control(schema("all", group("team")))
    assert flows.schemas.flow_of(asked("jane")).name != flows.schemas.flow_of(asked("joe")).name
    flows = control(schema("all", group("team"), by=""))
    assert flows.schemas.flow_of(asked("jane")) == flows.schemas.flow_of(asked("joe"))
    flows = control(schema("all", group("team"), by="ByNamespace"))
    assert flows.schemas.flow_of(asked("jane")) == flows.schemas.flow_of(asked("joe"))
    assert flows.schemas.flow_of(asked("jane")) != flows.schemas.flow_of(
        asked("jane", namespace="other")
    )


@pytest.mark.parametrize(
    ("subject", "user", "matches"),
    [
        ({"kind": "User", "user": {"name": "*"}}, User(name="x"), True),
        ({"kind": "User", "user": {"name": "y"}}, User(name="x"), False),
        (group("*"), User(name="x", groups=()), True),
        (group("g"), User(name="x", groups=("g",)), True),
        (
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "*"}},
            service_account("n", "robot"),
            True,
        ),
        (
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "*"}},
            service_account("nn", "robot"),
            False,
        ),
        (
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "robot"}},
            service_account("n", "robot"),
            True,
        ),
    ],
)
def test_subjects(subject, user, matches):
    flow = control(schema("s", subject)).schemas.flow_of(
        Attributes(user=user, verb="get", path="/version")
    )
    assert (flow.schema_uid == "uid-s") == matches


@pytest.mark.parametrize(
    ("rule", "wanted", "matches"),
    [
        ({"resources": ["pods"]}, {"subresource": "log"}, False),
        ({"resources": ["pods/log"]}, {"subresource": "log"}, True),
        ({"verbs": ["get"]}, {}, False),
        ({"apiGroups": ["apps"]}, {}, False),
        ({"namespaces": ["kube-system"]}, {}, False),
        ({"namespaces": ["default"]}, {}, True),
        ({"namespaces": ["*"], "clusterScope": False}, {"namespace": ""}, False),
    ],
)
def test_resource_rules(rule, wanted, matches):
    flows = control(schema("s", group("team"), resource=EVERYTHING | rule))
    assert (flows.schemas.flow_of(asked(**wanted)).schema_uid == "uid-s") == matches


def test_levels_bound_what_waits():
    queuing = {"queues": 10, "handSize": 2, "queueLengthLimit": 50}
    flows = control(
        schema("s", group("team")),
        schema("r", group("others"), level="rejecting"),
        levels=[level("work", 50, queuing), level("rejecting", 10)],
    )
    work = flows.schemas.flow_of(asked()).level
    assert (work.per_flow, work.in_all) == (500 + 100, 500 + 500)
    rejecting = flows.schemas.flow_of(asked(groups=("others",))).level
    assert (rejecting.per_flow, rejecting.in_all) == (None, 100)


def test_without_objects_each_user_is_a_flow():
    flows = FlowControl()
    assert flows.schemas.flow_of(asked("jane")) != flows.schemas.flow_of(asked("joe"))
    assert flows.schemas.flow_of(asked("jane")).level.in_all is None


def test_what_is_remembered_is_forgotten_when_objects_change():
    flows = control(schema("s", group("team")))
    assert flows.schemas.flow_of(asked()).schema_uid == "uid-s"
    flows.put(Key(SCHEMAS, "", "s"), None)
    assert flows.schemas.flow_of(asked()).schema_uid == ""


def test_a_user_whose_requests_all_wait_at_one_place_needs_no_look_at_them():
    flows = control(schema("b", group("masters"), precedence=1), schema("a", group("team")))
    jane = User(name="jane", groups=("team", "masters"))
    assert flows.schemas.flow_of_user(jane) == flows.schemas.flow_of(asked("jane", jane.groups))
    narrow = EVERYTHING | {"verbs": ["get"]}
    flows = control(schema("b", group("team"), precedence=1, resource=narrow))
    assert flows.schemas.flow_of_user(jane) is None
    by_namespace = control(schema("b", group("team"), by="ByNamespace"))
    assert by_namespace.schemas.flow_of_user(jane) is None


def test_what_is_written_while_the_schemas_are_read_counts_afterwards(monkeypatch):
    """Another thread writes and classifies then; the one that reads is the last to end."""
    flows = control(schema("s", group("team")))
    read, late = flow_control._read_schemas, schema("t", group("team"), precedence=1)

    def slowly(*objects):
        found = list(read(*objects))
        monkeypatch.setattr(flow_control, "_read_schemas", read)
        flows.put(Key(SCHEMAS, "", "t"), late)
        assert flows.schemas.flow_of(asked()).schema_uid == "uid-t"
        return found

    monkeypatch.setattr(flow_control, "_read_schemas", slowly)
    assert flows.schemas.flow_of(asked()).schema_uid == "uid-s"
    assert flows.schemas.flow_of(asked()).schema_uid == "uid-t"
