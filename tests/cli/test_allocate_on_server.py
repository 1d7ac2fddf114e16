"""`dralab allocate --apply`: results are written as real status updates and bindings."""

import re

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.components.profiles import PrototypeStrategy
from dralab.kernel.clock import SECOND, ManualClock
from dralab.runtime.client import Resource

PODS = Resource("", "v1", "pods")


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def apply(client, text, group_plurals):
    for item in yaml.safe_load_all(text):
        group, _, version = item["apiVersion"].rpartition("/")
        plural = group_plurals[item["kind"]]
        namespaced = item["kind"] in {
            "Pod",
            "DeviceClaim",
            "ResourceClaim",
            "ResourceClaimTemplate",
        }
        resource = Resource(group, version, plural, namespaced)
        client.create(resource, item, "default" if namespaced else "")


K8SRM = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: pool-a}
spec: {driver: toys, nodeName: node-a, devices: [{name: d0}]}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: toy}
spec: {definition: {driver: toys}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, devices: [{name: toy}]}]
  deviceClaims: {devices: [{name: toy, class: toy}]}
"""
EVOLUTION = """\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourcePool
metadata: {name: pool-a}
spec: {driverName: toys, nodeName: node-a, devices: [{name: d0}]}
---
apiVersion: resource.k8s.io/v1alpha2
kind: DeviceClass
metadata: {name: toy}
requirements: [{deviceSelector: "device.driverName == 'toys'"}]
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {requests: [{name: r, deviceClassName: toy}]}}
---
apiVersion: resource.k8s.io/v1alpha2
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: toy}]}}]
  resourceClaims: [{name: toy, resourceClaimTemplateName: t}]
"""
TODAY = """\
apiVersion: v1
kind: Node
metadata: {name: node-a}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: slice-a}
spec: {driver: toys, nodeName: node-a, pool: {name: pool-a, generation: 1, resourceSliceCount: 1}, devices: [{name: d0}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: toy}
spec: {selectors: [{cel: {expression: "device.driver == 'toys'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: toy}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  # Nobody says that the node is ready.
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: i, resources: {claims: [{name: toy}]}}]
  resourceClaims: [{name: toy, resourceClaimTemplateName: t}]
"""
PLURALS = {
    "DeviceClaim": "deviceclaims",
    "DevicePool": "devicepools",
    "DeviceClass": "deviceclasses",
    "Pod": "pods",
    "ResourcePool": "resourcepools",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
    "Node": "nodes",
}


@pytest.mark.parametrize(
    ("api", "profiles", "text"),
    [
        ("k8srm", ("v1", "k8srm"), K8SRM),
        ("evolution", ("evolution",), EVOLUTION),
        ("v1", ("v1", "k8srm"), TODAY),
    ],
)
def test_a_pod_is_bound_and_its_claim_allocated_on_the_server(api, profiles, text):
    with Cluster(Options(profiles=profiles)) as cluster:
        client = cluster.client
        apply(client, text, PLURALS)
        result = run(
            "allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig), "--api", api, "p"
        )
        assert result.exit_code == 0, result.output
        if api == "evolution":
            pod = client.get(Resource("resource.k8s.io", "v1alpha2", "pods"), "p", "default")
            [claim] = client.list(Resource("resource.k8s.io", "v1alpha2", "resourceclaims")).items
            assert claim["status"]["allocation"]["driverData"][0]["data"]["results"] == [
                {"deviceName": "d0", "requestName": "r"}
            ]
        elif api == "k8srm":
            pod = client.get(PODS, "p", "default")
            [claim] = client.list(Resource("devmgmtproto.k8s.io", "v1alpha1", "deviceclaims")).items
            assert claim["status"]["allocations"] == [
                {"devicePoolName": "pool-a", "deviceName": "d0"}
            ]
            assert claim["status"]["podNames"] == ["p"]
        else:
            pod = client.get(PODS, "p", "default")
            [claim] = client.list(Resource("resource.k8s.io", "v1", "resourceclaims")).items
            assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"
            assert claim["status"]["reservedFor"][0]["name"] == "p"
            assert pod["status"]["resourceClaimStatuses"] == [
                {"name": "toy", "resourceClaimName": claim["metadata"]["name"]}
            ]
        assert pod["spec"]["nodeName"] == "node-a"
        again = run("allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig), "--api", api)
        assert again.exit_code == 0
        assert "pod" not in again.stdout


AFFINITY = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "cache"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
SPREAD = [
    {
        "labelSelector": {"matchLabels": {"app": "train"}},
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
    }
]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (
            {"affinity": AFFINITY},
            "app=cache runs anywhere. Help: make the pod affinity a preference",
        ),
        (
            {"topologySpreadConstraints": SPREAD},
            "node(s) didn't match pod topology spread constraints (missing required label)",
        ),
    ],
    ids=["affinity", "spread"],
)
def test_a_pod_is_not_bound_against_a_rule_about_other_pods(rule, reason, tmp_path):
    *others, pod = yaml.safe_load_all(TODAY)
    pod["spec"] |= rule
    text = yaml.safe_dump_all([*others, pod])
    with Cluster(Options(profiles=("v1",))) as cluster:
        apply(cluster.client, text, PLURALS)
        served = run("allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig), "--api", "v1")
        stored = cluster.client.get(PODS, "p", "default")
    (tmp_path / "all.yaml").write_text(text)
    written = run("allocate", "-f", str(tmp_path / "all.yaml"))
    assert "nodeName" not in stored["spec"]
    for result in (served, written):
        assert result.exit_code == 1
        assert reason in result.stdout


def test_the_oldest_pod_comes_first_within_a_second_too():
    clock = ManualClock(1_000_000_000 * SECOND)
    with Cluster(Options(profiles=("v1", "k8srm")), clock=clock) as cluster:
        pool, class_, pod = yaml.safe_load_all(K8SRM)
        pool["spec"]["devices"] = [{"name": f"d{number}"} for number in range(3)]
        apply(cluster.client, yaml.safe_dump_all([pool, class_]), PLURALS)
        for seconds, name in ((0, "oldest"), (5, "b"), (0, "a"), (5, "0-youngest")):
            clock.advance(seconds * SECOND)
            pod["metadata"]["name"] = name
            apply(cluster.client, yaml.safe_dump(pod), PLURALS)
        result = run("allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig))
        rows = [line.split() for line in result.stdout.splitlines()[1:5]]
        assert [(row[1], row[3]) for row in rows] == [
            ("oldest", "node-a"), ("b", "node-a"), ("a", "node-a"), ("0-youngest", "-"),
        ]  # fmt: skip
        assert result.exit_code == 1


def test_a_server_that_is_not_there_is_bad_input_and_not_a_no(tmp_path):
    file = tmp_path / "config"
    with Cluster() as cluster:
        cluster.write_kubeconfig(file)
    result = run("allocate", "--apply", "--kubeconfig", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: http://127.0.0.1:")
    assert result.stderr.count("\n") == 1


def test_a_profile_that_is_not_served_is_bad_input(tmp_path):
    with Cluster(Options(profiles=("v1",))) as cluster:
        result = run(
            "allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig), "--api", "evolution"
        )
    assert result.exit_code == 2
    assert "start it with --api evolution" in result.stderr


def test_pods_with_claims_of_today_are_left_to_todays_scheduler():
    with Cluster(Options(profiles=("v1", "k8srm"))) as cluster:
        pool, class_, pod = yaml.safe_load_all(K8SRM)
        today = {"metadata": {"name": "today", "namespace": "default"}}
        today |= {"apiVersion": "v1", "kind": "Pod"}
        claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
        today["spec"] = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims}
        apply(cluster.client, yaml.safe_dump_all([pool, class_, pod, today]), PLURALS)
        everything = run("allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig))
        assert everything.exit_code == 0
        assert "today" not in everything.stdout
        named = run("allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig), "today")
        assert named.exit_code == 1
        assert "spec.resourceClaims are not claims of k8srm" in named.stdout
        again = run("allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig))
        assert "nothing in the input asks for devices of k8srm" in again.stderr


UNREADABLE = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClaim
metadata: {name: bad}
spec: {claims: [{deviceClass: toy, matchAttributes: model}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec:
  containers: [{name: c, image: i}]
  deviceClaims: {claimName: bad}
"""


def test_a_claim_that_an_older_server_let_in_stops_only_its_own_pod(monkeypatch):
    with Cluster(Options(profiles=("v1", "k8srm"))) as cluster:
        with monkeypatch.context() as lenient:
            lenient.setattr(PrototypeStrategy, "validate", lambda self, value: [])
            lenient.setattr(PrototypeStrategy, "warnings", lambda self, value, old=None: [])
            apply(cluster.client, UNREADABLE, PLURALS)
        apply(cluster.client, K8SRM, PLURALS)
        result = run("allocate", "--apply", "--kubeconfig", str(cluster.kubeconfig))
    why = 'spec.claims[0].matchAttributes: Invalid value: "model": must be a list'
    assert f"Error: DeviceClaim default/bad is left out: {why}\n" in result.stderr
    assert f'DeviceClaim "default/bad" is invalid: {why}\n' in result.stdout
    assert re.search(r"default +p .* node-a ", result.stdout)
    assert result.exit_code == 1


def test_what_a_server_serves_says_whose_pods_are_meant():
    with Cluster(Options(profiles=("evolution",))) as cluster:
        apply(cluster.client, EVOLUTION, PLURALS)
        where = ["--kubeconfig", str(cluster.kubeconfig)]
        for command, answer in [
            (["explain"], "fits on node node-a"),
            (["allocate"], "pool-a"),
            (["allocate", "--apply"], "node-a"),
        ]:
            result = run(*command, *where)
            assert result.exit_code == 0, result.output
            assert answer in result.stdout


def test_where_pods_of_two_generations_wait_the_other_one_is_named():
    with Cluster(Options(profiles=("evolution",))) as cluster:
        where = ["--kubeconfig", str(cluster.kubeconfig)]
        apply(cluster.client, K8SRM.replace("name: p}", "name: older}"), PLURALS)
        result = run("allocate", "--apply", *where)
        assert re.search(r"default +older .* node-a ", result.stdout), result.output
        more = K8SRM.split("---\n")[2].replace("name: p}", "name: another}")
        apply(cluster.client, more, PLURALS)
        apply(cluster.client, EVOLUTION, PLURALS)
        result = run("allocate", "--apply", *where)
        assert re.search(r"default +p .* node-a ", result.stdout)
        assert "pods of k8srm wait too: add --api k8srm" in result.stderr


def test_today_is_explained_where_it_is_served():
    with Cluster(Options(profiles=("v1", "k8srm"))) as cluster:
        apply(cluster.client, K8SRM, PLURALS)
        result = run("explain", "--kubeconfig", str(cluster.kubeconfig))
        assert "nothing in the input asks for devices" in result.stderr
        assert "pods of k8srm wait: add --api k8srm" in result.stderr


CLASSIC_PLURALS = {
    "ResourceClass": "resourceclasses",
    "ResourceClaim": "resourceclaims",
    "Pod": "pods",
}
CLASSIC = """\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: gpuu}
driverName: x.example.com
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata: {name: c}
spec: {resourceClassName: gpu}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: a}]}}]
  resourceClaims: [{name: a, source: {resourceClaimName: c}}]
"""


@pytest.mark.parametrize(
    ("profiles", "more"), [(("v1", "classic"), ("--api", "classic")), (("classic",), ())]
)
def test_classic_dra_is_explained_from_a_server(profiles, more):
    with Cluster(Options(profiles=profiles)) as cluster:
        where = ["--kubeconfig", str(cluster.kubeconfig)]
        apply(cluster.client, CLASSIC, CLASSIC_PLURALS)
        result = run("explain", *where, *more)
        told = 'claim default/c: ResourceClass "gpu" does not exist; did you mean "gpuu"?'
        assert told in result.stdout, result.output
        if more:
            # Of the pod that waits there, today's generation knows nothing.
            assert "pods of classic wait: add --api classic" in run("explain", *where).stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("api", "profiles", "text"),
    [
        ("k8srm", ("k8srm",), K8SRM),
        ("evolution", ("evolution",), EVOLUTION),
        ("v1", ("v1",), TODAY),
    ],
    ids=["k8srm", "evolution", "v1"],
)
def test_allocations_and_partitions_read_a_cluster(api, profiles, text, tmp_path):
    with Cluster(Options(profiles=profiles)) as cluster:
        apply(cluster.client, text, PLURALS)
        where = ["--kubeconfig", str(cluster.kubeconfig)]
        counted = run("enumerate", "allocations", *where, "p", "--count")
        assert counted.stdout == "1\n", counted.output
        unknown = run("enumerate", "allocations", *where, "ml/q")
        assert unknown.exit_code == 2
        assert "no file and no pod ml/q; known pods: default/p" in unknown.stderr
        nothing = run("enumerate", "partitions", *where)
        assert (nothing.exit_code, nothing.stdout) == (1, "")
        pools = run("generate", "a100", "--nodes", "1", "--api", api).stdout
        pools = [
            each
            for each in yaml.safe_load_all(pools)
            if "Pool" in each["kind"] or "Slice" in each["kind"]
        ]
        # With the slices of one seventh, a GPU has 2319 partitions, which take seconds.
        for each in pools:
            if devices := each["spec"].get("devices"):
                each["spec"]["devices"] = [one for one in devices if "-1g" not in one["name"]]
        apply(cluster.client, yaml.safe_dump_all(pools), PLURALS)
        assert run("enumerate", "partitions", *where, "--count", "--gpu", "0").stdout == "19\n"
        # What files add counts as applied to the cluster.
        file = tmp_path / "pod.yaml"
        file.write_text(text.rpartition("---\n")[2].replace("name: p}", "name: q}"))
        assert run("enumerate", "allocations", *where, str(file), "--count").stdout == "1\n"
