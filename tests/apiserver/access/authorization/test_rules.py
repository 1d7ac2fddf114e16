"""Which requests a rule covers: a table, and the rules of upstream written out slowly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.authorization.rbac import RoleIndex
from dralab.apiserver.access.authorization.rules import PolicyRule
from dralab.apiserver.access.users import User
from dralab.apiserver.storage import Key

RESOURCES = [
    # verbs, groups, resources of the rule; verb, group, resource, subresource; covered
    ("get", "", "pods", "get", "", "pods", "", True),
    ("get", "", "pods", "list", "", "pods", "", False),
    ("get", "", "pods", "get", "apps", "pods", "", False),
    ("get", "", "pods", "get", "", "pods", "log", False),
    ("get", "", "pods/log", "get", "", "pods", "log", True),
    ("get", "", "pods/log", "get", "", "pods", "", False),
    ("get", "", "*/log", "get", "", "pods", "log", True),
    ("get", "", "*/log", "get", "", "pods", "", False),
    ("get", "", "*/log", "get", "", "pods", "exec", False),
    ("get", "", "pods/*", "get", "", "pods", "log", False),
    ("get", "", "*", "get", "", "pods", "log", True),
    ("get", "", "*", "get", "", "pods", "", True),
    ("*", "", "pods", "bind", "", "pods", "", True),
    ("get", "*", "pods", "get", "apps", "pods", "", True),
    ("*", "*", "*", "anything", "x.io", "things", "status", True),
    ("get", "", "po*", "get", "", "pods", "", False),
]
PATHS = [
    ("get", "/healthz", "get", "/healthz", True),
    ("get", "/healthz", "get", "/healthz/ping", False),
    ("get", "/healthz/*", "get", "/healthz/ping", True),
    ("get", "/healthz/*", "get", "/healthz", False),
    ("get", "/healthz*", "get", "/healthzx", True),
    ("get", "*", "get", "/metrics", True),
    ("get", "/metrics", "post", "/metrics", False),
    ("*", "/metrics", "post", "/metrics", True),
    ("get", "/a*c", "get", "/abc", False),
]


@pytest.mark.parametrize(
    ("verbs", "groups", "resources", "verb", "group", "resource", "subresource", "covered"),
    RESOURCES,
)
def test_a_rule_covers_resources(
    verbs, groups, resources, verb, group, resource, subresource, covered
):
    rule = PolicyRule(verbs=(verbs,), groups=(groups,), resources=(resources,))
    assert rule.covers_resource(verb, group, resource, subresource) is covered


@pytest.mark.parametrize(("verbs", "url", "verb", "path", "covered"), PATHS)
def test_a_rule_covers_paths(verbs, url, verb, path, covered):
    assert PolicyRule(verbs=(verbs,), urls=(url,)).covers_path(verb, path) is covered


WORDS = st.sampled_from(["*", "a", "b"])
RULES = st.fixed_dictionaries(
    {
        "verbs": st.lists(WORDS, max_size=2),
        "apiGroups": st.lists(WORDS, max_size=2),
        "resources": st.lists(st.sampled_from(["*", "a", "b", "a/s", "*/s"]), max_size=2),
        "resourceNames": st.lists(st.sampled_from(["x", "y"]), max_size=1),
    }
)
SUBJECTS = st.sampled_from(
    [
        {"kind": "User", "name": "jane"},
        {"kind": "User", "name": "joe"},
        {"kind": "Group", "name": "g1"},
        {"kind": "Group", "name": "g2"},
        {"kind": "ServiceAccount", "name": "sa"},
        {"kind": "ServiceAccount", "name": "sa", "namespace": "n2"},
        {"kind": "User", "name": "system:serviceaccount:n2:sa"},
    ]
)
WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("role"), st.sampled_from(["", "n1"]), st.sampled_from("pq"), RULES),
        st.tuples(
            st.just("binding"),
            st.sampled_from(["", "n1"]),
            st.sampled_from("uvw"),
            st.tuples(
                st.sampled_from(["Role", "ClusterRole"]),
                st.sampled_from("pq"),
                st.lists(SUBJECTS, max_size=2),
            ),
        ),
        st.tuples(
            st.just("gone"), st.sampled_from(["", "n1"]), st.sampled_from("pquvw"), st.none()
        ),
    ),
    max_size=12,
)
QUESTIONS = st.builds(
    Attributes,
    user=st.sampled_from(
        [
            User(name="jane", groups=("g1",)),
            User(name="joe", groups=("g2", "g1")),
            User(name="system:serviceaccount:n2:sa", groups=()),
            User(name="system:serviceaccount:n1:sa", groups=("g2",)),
        ]
    ),
    verb=st.sampled_from("ab"),
    group=st.sampled_from("ab"),
    resource=st.sampled_from("ab"),
    subresource=st.sampled_from(["", "s", "t"]),
    namespace=st.sampled_from(["", "n1", "n3"]),
    name=st.sampled_from(["", "x", "y"]),
)


@pytest.mark.thorough
@given(writes=WRITES, questions=st.lists(QUESTIONS, min_size=1, max_size=4))
def test_the_index_decides_as_a_walk_over_all_bindings_does(writes, questions):
    index, objects = RoleIndex(), {}
    for kind, namespace, name, value in writes:
        key = _key(kind, namespace, name)
        objects[key] = made = _value(kind, namespace, name, value)
        index.put(key, made)
        for wanted in questions:
            decision = index.grants(wanted.user, wanted.namespace).decide(wanted)
            assert decision.allowed is _allowed(objects, wanted)


def _key(kind, namespace, name):
    which = "role" if name in "pq" else "binding"
    plural = {"role": "roles", "binding": "rolebindings"}[which]
    return Key(
        f"rbac.authorization.k8s.io/{'' if namespace else 'cluster'}{plural}", namespace, name
    )


def _value(kind, namespace, name, value):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    if kind == "gone":
        return None
    if kind == "role":
        return {"metadata": metadata, "rules": [value]}
    ref_kind, ref_name, subjects = value
    return {
        "metadata": metadata,
        "roleRef": {"kind": ref_kind, "name": ref_name},
        "subjects": subjects,
    }


def _allowed(objects, wanted):
    for key, binding in objects.items():
        if (
            binding is None
            or "subjects" not in binding
            or key.namespace not in {"", wanted.namespace}
        ):
            continue
        ref = binding["roleRef"]
        if ref["kind"] == "Role":
            role = objects.get(Key("rbac.authorization.k8s.io/roles", key.namespace, ref["name"]))
        else:
            role = objects.get(Key("rbac.authorization.k8s.io/clusterroles", "", ref["name"]))
        if role is None or not any(_is(each, wanted.user, key) for each in binding["subjects"]):
            continue
        if any(_covers(each, wanted) for each in role["rules"]):
            return True
    return False


def _is(subject, user, key):
    match subject["kind"]:
        case "User":
            return subject["name"] == user.name
        case "Group":
            return subject["name"] in user.groups
        case _:
            namespace = subject.get("namespace") or key.namespace
            return bool(namespace) and (
                user.name == f"system:serviceaccount:{namespace}:{subject['name']}"
            )


def _covers(rule, wanted):
    def one(part, *values):
        return any(value in rule[part] for value in values)

    sub = wanted.subresource
    resources = ["*", f"{wanted.resource}/{sub}", f"*/{sub}"] if sub else ["*", wanted.resource]
    return (
        one("verbs", "*", wanted.verb)
        and one("apiGroups", "*", wanted.group)
        and one("resources", *resources)
        and (not rule["resourceNames"] or wanted.name in rule["resourceNames"])
    )
