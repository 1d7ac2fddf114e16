"""A pod is judged by what its own spec says, though most are copies of one that was judged."""

from dataclasses import fields, replace

import pytest

from dralab.api.core import pods
from dralab.api.core.pod_rules.facts import (
    APPARMOR,
    DELETION_COST,
    MIRROR,
    OLD_ANNOTATIONS,
    READ,
    READ_PREFIXES,
    SECCOMP_CONTAINER,
    SECCOMP_POD,
    PodFacts,
)
from dralab.api.core.pods import PodStrategy

STRATEGY = PodStrategy()  # one for all: what other tests left must not count either


def made(*volumes, annotations=None, **spec):
    value = {
        "metadata": {"name": "p", "annotations": annotations or {}},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": name, **source} for name, source in volumes],
            **spec,
        },
    }
    STRATEGY.default(value)
    return value


def judged(value):
    return [str(error) for error in STRATEGY.validate(value)]


def test_names_by_chance_do_not_hide_that_two_are_the_same():
    one, other = "kube-api-access-aaaaa", "kube-api-access-bbbbb"
    folder = {"emptyDir": {}}
    assert judged(made((one, folder), (other, folder))) == []
    assert judged(made((other, folder), (one, folder))) == []
    assert judged(made((one, folder), (one, folder))) == [
        f'spec.volumes[1].name: Duplicate value: "{one}"'
    ]


def test_the_name_of_a_pod_counts_where_claims_are_made_for_it():
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    wanted = {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    value = made(("v", wanted), ("w", {"persistentVolumeClaim": {"claimName": "p-v"}}))
    value["metadata"]["name"] = "q"
    assert judged(value) == []
    value["metadata"]["name"] = "p"
    assert "must not reference a PVC that gets created" in judged(value)[0]


def test_annotations_count_where_the_server_warns_of_them():
    assert judged(made()) == []
    key = "security.alpha.kubernetes.io/sysctls"
    value = made(annotations={key: "a=b"})
    assert judged(value) == []
    (warning,) = STRATEGY.warnings(value)
    assert warning.startswith(f"metadata.annotations[{key}]: non-functional")
    assert STRATEGY.warnings(made()) == []


def test_a_copy_of_a_pod_that_is_warned_of_is_warned_of_too():
    once = made(imagePullSecrets=[{"name": "a"}, {"name": "a"}])
    for value in (once, made(imagePullSecrets=[{"name": "a"}, {"name": "a"}])):
        assert judged(value) == []
        assert STRATEGY.warnings(value) == ['spec.imagePullSecrets[1].name: duplicate name "a"']


def test_a_bad_pod_is_judged_each_time():
    for _ in range(2):
        assert judged(made(hostname="A_b"))[0].startswith("spec.hostname: Invalid value")


def test_long_lists_are_judged_item_by_item_and_warned_of_a_bounded_number_of_times():
    ports = [{"containerPort": 80}] * 5_000
    value = made(containers=[{"name": "c", "image": "i", "ports": ports}])
    assert judged(value) == []
    assert len(STRATEGY.warnings(value)) == 100
    uses = [{"name": "g"}, {"name": "g", "request": "r"}, {"name": "h", "request": "r"}]
    wanted = {"resources": {"claims": [*uses, {"name": "h"}]}}
    named = [{"name": name, "resourceClaimName": name} for name in ("g", "h")]
    containers = [{"name": "c", "image": "i", **wanted}]
    assert judged(made(containers=containers, resourceClaims=named)) == [
        'spec.containers[0].resources.claims[1]: Duplicate value: "g"',
        'spec.containers[0].resources.claims[3]: Duplicate value: "h"',
    ]
    same = {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}
    assert [each.split(":")[0] for each in judged(made(topologySpreadConstraints=[same] * 3))] == [
        f"spec.topologySpreadConstraints[{index}].{{topologyKey, whenUnsatisfiable}}"
        for index in (0, 1)
    ]


# Of each annotation that a rule reads, one that changes the verdict about a pod of a known spec.
TELLING = {
    MIRROR: "x",
    DELETION_COST: "much",
    SECCOMP_POD: "runtime/default",
    f"{APPARMOR}none": "unconfined",
    f"{SECCOMP_CONTAINER}c": "runtime/default",
    **dict.fromkeys(OLD_ANNOTATIONS, "x"),
}


def test_there_is_a_telling_value_of_each_annotation_that_rules_read():
    assert {key for key in TELLING if not key.startswith(READ_PREFIXES)} == READ
    assert all(any(key.startswith(prefix) for key in TELLING) for prefix in READ_PREFIXES)


@pytest.mark.parametrize("key", TELLING)
def test_an_annotation_that_rules_read_counts_for_the_second_pod_of_a_spec(key):
    strategy = PodStrategy()
    plain, telling = made(), made(annotations={key: TELLING[key]})
    assert (strategy.validate(plain), strategy.warnings(plain)) == ([], [])
    assert (strategy.validate(telling), strategy.warnings(telling)) != ([], [])


def test_rules_are_told_nothing_that_is_not_in_the_key_of_the_cache(monkeypatch):
    told = []

    def remember(spec, path, *, comparing, pod):
        told.append(pod)
        return []

    monkeypatch.setattr(pods, "pod_spec_problems", remember)
    monkeypatch.setattr(pods, "pod_annotation_problems", lambda pod: told.append(pod) or [])
    monkeypatch.setattr(pods, "pod_warnings", lambda pod: told.append(pod) or [])
    strategy = PodStrategy()
    for number in range(3):
        value = made(annotations={"example.com/a": str(number)})
        value["metadata"] |= {"name": f"p{number}", "labels": {"a": str(number)}, "uid": number}
        strategy.validate(value)
        assert strategy.warnings(value) == []
    first, *others = told
    assert others  # asked about the first pod, and of nothing else about the others
    assert all(each == first for each in others)
    assert len({each.key() for each in told}) == 1


def test_each_fact_is_in_the_key():
    spec = {"volumes": [{"name": "v", "ephemeral": {}}]}
    facts = PodFacts(spec, {MIRROR: "a"}, "p")
    others = {"spec": {}, "annotations": {MIRROR: "b"}, "name": "q"}
    assert set(others) == {each.name for each in fields(PodFacts)}
    for name, other in others.items():
        assert replace(facts, **{name: other}).key() != facts.key()
