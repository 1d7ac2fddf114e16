"""A pod is judged by what its own spec says, though most are copies of one that was judged."""

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
