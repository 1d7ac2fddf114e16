"""Devices for the claims in files: what is printed, which exit codes, and every mistake told."""

import json

import pytest
import yaml
from click.testing import CliRunner

from builders import claim, counter_set, device, device_class, node, obj, pool, request
from dralab.cli.main import main


@pytest.fixture
def run(tmp_path):
    def run_(*arguments, objects=(), text=None, stdin=None):
        arguments = list(arguments)
        if objects or text is not None:
            file = tmp_path / "input.yaml"
            file.write_text(text if text is not None else yaml.safe_dump_all(objects))
            arguments[1:1] = ["-f", str(file)]
        found = CliRunner().invoke(main, arguments, input=stdin)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.output
        return found

    return run_


GPUS = pool("p", device("d0", model="a"), device("d1", model="b"))
CLASS = device_class("gpu")
ONE = claim("c", request("r"), namespace="ml")


def pod(name, *claims, namespace="ml", **spec):
    entries = [
        {"name": f"e{index}", "resourceClaimName": item} for index, item in enumerate(claims)
    ]
    spec = {"containers": [{"name": "main", "image": "i"}], "resourceClaims": entries} | spec
    return obj("Pod", name, namespace=namespace, api="v1", spec=spec)


def table(found):
    return [line.split() for line in found.stdout.splitlines() if line.startswith("ml")]


def test_a_claim_gets_its_device(run):
    found = run("allocate", objects=[*GPUS, CLASS, ONE])
    assert table(found) == [["ml", "-", "c", "node-1", "r", "d0", "p", "gpu.example.com"]]
    assert found.exit_code == 0


def test_a_pod_without_devices_is_placed_too_or_says_why_not(run):
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "9k"}}}
    small = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}
    one = obj("Node", "node-1", api="v1", status=small)
    found = run("allocate", objects=[one, pod("web"), pod("big", containers=[container])])
    assert table(found)[0] == ["ml", "web", "-", "node-1", "-", "-", "-", "-"]
    assert table(found)[1] == ["ml", "big", *"------"]
    assert "pod ml/big: " in found.stdout
    assert found.exit_code == 1


@pytest.mark.parametrize("words", [("allocate", "--pods"), ("schedule",)])
def test_placed_pods_are_printed_with_their_node_where_asked_for(run, words):
    found = run(*words, "-o", "json", objects=[*GPUS, CLASS, ONE, pod("train", "c"), pod("web")])
    items = json.loads(found.stdout)["items"]
    assert [each["kind"] for each in items] == ["ResourceClaim", "Pod", "Pod"]
    assert {each["spec"]["nodeName"] for each in items[1:]} == {"node-1"}


def test_structured_output_is_the_real_status(run):
    found = run("allocate", "-o", "json", objects=[*GPUS, CLASS, ONE])
    (item,) = json.loads(found.stdout)["items"]
    assert item["status"]["allocation"] == {
        "devices": {
            "results": [{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d0"}]
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
            ]
        },
    }
    again = run("allocate", "-o", "yaml", objects=[*GPUS, CLASS, ONE])
    assert list(yaml.safe_load_all(again.stdout)) == [item]


def test_what_is_allocated_already_stays_and_is_in_use(run):
    first = json.loads(run("allocate", "-o", "json", objects=[*GPUS, CLASS, ONE]).stdout)
    second = claim("other", request("r"), namespace="ml")
    found = run("allocate", objects=[*GPUS, CLASS, *first["items"], second])
    assert table(found) == [["ml", "-", "other", "node-1", "r", "d1", "p", "gpu.example.com"]]


def test_a_claim_that_two_pods_share_is_allocated_once(run):
    pods = [pod("a", "c"), pod("b", "c")]
    found = run("allocate", objects=[*GPUS, CLASS, ONE, *pods])
    assert [row[:6] for row in table(found)] == [
        ["ml", "a", "c", "node-1", "r", "d0"],
        ["ml", "b", "c", "node-1", "(allocated)", "-"],
    ]


def test_a_pod_goes_where_its_selector_and_its_claims_let_it(run):
    nodes = [node("node-1", zone="x"), node("node-2", zone="y")]
    far = pool("q", device("d0"), node="node-2")
    asked = pod("a", "c", nodeSelector={"zone": "y"})
    found = run("allocate", objects=[*nodes, *GPUS, *far, CLASS, ONE, asked])
    assert table(found)[0][3] == "node-2"


def test_an_extended_resource_is_a_request(run):
    limits = {"limits": {"example.com/gpu": "2"}}
    asked = pod("a", containers=[{"name": "m", "image": "i", "resources": limits}])
    del asked["spec"]["resourceClaims"]
    mapped = device_class("gpu", extendedResourceName="example.com/gpu")
    found = run("allocate", objects=[*GPUS, mapped, asked])
    assert [row[2:6] for row in table(found)] == [
        ["a-extended-resources", "node-1", "container-0-request-0", "d0"],
        ["a-extended-resources", "node-1", "container-0-request-0", "d1"],
    ]


def test_a_no_comes_with_its_reason_and_code_one(run):
    found = run(
        "allocate", objects=[*GPUS, CLASS, claim("c", request("r", count=3), namespace="ml")]
    )
    assert found.exit_code == 1
    assert found.stdout.splitlines()[-1] == (
        "claim ml/c: no node has 3 gpus, the largest has 2 (DRA031): 2 suitable devices on 1 node, "
        "at most 2 on one node. Help: ask for 2 devices."
    )


def test_a_pod_whose_claim_is_missing_is_told(run):
    found = run("allocate", objects=[*GPUS, CLASS, pod("a", "nope")])
    assert found.exit_code == 1
    assert 'there is no ResourceClaim "nope" (DRA001): no ResourceClaims.' in found.stdout


def test_all_mistakes_are_told_with_code_two(run):
    bad = pool("p", device("d", consumes={"s": {"m": 1}}), counters=[counter_set("t", m=1)])
    broken = claim("c", request("r", "gpu", "device.driver = 1"))
    broken["spec"]["devices"]["requests"][0]["exactly"]["counts"] = 1
    selector = claim("e", request("r", "gpu", "device.colour == 1"))
    mistyped = pod("a")
    mistyped["spec"]["containers"][0]["imagePullPolicies"] = "Never"
    found = run("allocate", objects=[*bad, broken, selector, mistyped])
    assert found.exit_code == 2
    assert found.stdout == ""
    lines = found.stderr.splitlines()
    assert all(line.startswith("Error: ") for line in lines if "input.yaml" in line)
    for text in (
        'unknown field, did you mean "count"?',
        "undefined field 'colour'",
        "Pod ml/a: spec.containers[0].imagePullPolicies: Forbidden: unknown field, did you mean "
        '"imagePullPolicy"?',
        'spec.devices[0].consumesCounters[0].counterSet: Not found: "s"',
    ):
        assert text in found.stderr, (text, found.stderr)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "nothing to read"),
        (["-f", "none.yaml"], "none.yaml: cannot be read: No such file"),
    ],
)
def test_no_input_is_told(run, arguments, expected):
    found = run("allocate", *arguments)
    assert found.exit_code == 2
    assert expected in found.stderr


def test_an_unknown_node_is_told(run):
    found = run("allocate", "--node", "nope", objects=[*GPUS, CLASS, ONE])
    assert found.exit_code == 2
    assert "no node 'nope'; known nodes: node-1" in found.stderr


def test_input_without_devices_is_told(run):
    found = run("allocate", objects=[CLASS, ONE])
    assert found.exit_code == 2
    assert "no ResourceSlice" in found.stderr


def test_standard_input_is_read(run):
    found = run("allocate", "-f", "-", stdin=yaml.safe_dump_all([*GPUS, CLASS, ONE]))
    assert len(table(found)) == 1


# --- explain


def test_a_no_is_explained(run):
    found = run("explain", "c", objects=[*GPUS, CLASS, claim("c", request("r", count=3))])
    assert found.exit_code == 1
    first = found.stdout.splitlines()[0].split()
    assert " ".join(first) == "claim c waits: no node has 3 gpus, the largest has 2 DRA031"
    assert "  help: ask for 2 devices\n" in found.stdout


def test_a_yes_is_explained_too(run):
    asked = claim("c", request("r", "gpu", 'device.attributes["gpu.example.com"].model == "b"'))
    found = run("explain", objects=[*GPUS, CLASS, asked])
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        "claim c fits on node-1:",
        "  r of claim c: p/d1, the only device that could serve it",
        "    passed over: 1 not of claim c `device.attributes[\"gpu.example.com\"].model == \"b\"`",
    ]  # fmt: skip


def test_what_comes_before_takes_its_devices_first(run):
    others = [claim(name, request("r")) for name in ("a", "b", "c")]
    found = run("explain", "c", "-o", "json", objects=[*GPUS, CLASS, *others])
    (told,) = json.loads(found.stdout)
    assert (told["object"], told["fits"]) == ("claim default/c", False)
    assert told["code"] == "DRA030"
    assert told["facts"]["holders"] == ["a", "b"]
    assert told["helps"][0] == {
        "kind": "wait", "text": "wait until claim a or claim b ends: each is enough",
        "fitsNow": True, "who": ["a", "b"], "enough": 1, "number": 2,
    }  # fmt: skip


def test_an_unknown_name_is_told(run):
    found = run("explain", "nope", objects=[*GPUS, CLASS, ONE])
    assert found.exit_code == 2
    assert "no pod or claim 'nope' waits; those that do: ml/c" in found.stderr


def test_a_policy_chooses_among_the_nodes(run):
    nodes = [node("node-1"), node("node-2")]
    far = pool("q", device("d0"), device("d1"), node="node-2")
    first = claim("a", request("r"), namespace="ml")
    second = claim("b", request("r"), namespace="ml")
    objects = [*nodes, *GPUS, *far, CLASS, first, second]
    places = {
        policy: [row[3] for row in table(run("allocate", "--policy", policy, objects=objects))]
        for policy in ("kubernetes", "pack", "spread")
    }
    assert places["kubernetes"] == places["pack"] == ["node-1", "node-1"]
    assert sorted(places["spread"]) == ["node-1", "node-2"]


def test_a_rule_taints_devices_from_outside(run):
    spec = {
        "deviceSelector": {"driver": "gpu.example.com", "device": "d0"},
        "taint": {"key": "sick", "effect": "NoSchedule"},
    }
    rule = obj("DeviceTaintRule", "r", spec=spec)
    assert table(run("allocate", objects=[*GPUS, CLASS, ONE, rule]))[0][5] == "d1"


def test_the_optimal_policy_serves_as_many_as_can_be_served(run):
    pytest.importorskip("ortools")
    # First come, first served gives the whole GPU to the first, and nothing to the others.
    mig = pool(
        "p",
        device("whole", consumes={"s": {"m": 4}}),
        *(device(f"part{i}", consumes={"s": {"m": 1}}) for i in range(4)),
        counters=[counter_set("s", m=4)],
    )
    big = claim("big", request("r", count=1), namespace="ml")
    small = [claim(f"small{i}", request("r"), namespace="ml") for i in range(3)]
    first = run("allocate", objects=[*mig, CLASS, big, *small])
    assert sum(row[3] == "node-1" for row in table(first)) == 1
    best = run("allocate", "--policy", "optimal", objects=[*mig, CLASS, big, *small])
    assert sum(row[3] == "node-1" for row in table(best)) == 4
    assert best.exit_code == 0
    assert "optimal: 4 of 4 served together; no allocation serves more than 4" in best.stderr


def test_the_optimal_policy_leaves_restricted_pods_for_later(run):
    pytest.importorskip("ortools")
    nodes = [node("node-1", zone="x"), node("node-2", zone="y")]
    far = pool("q", device("d0"), node="node-2")
    asked = pod("a", "c", nodeSelector={"zone": "y"})
    other = claim("o", request("r"), namespace="ml")
    found = run(
        "allocate", "--policy", "optimal", objects=[*nodes, *GPUS, *far, CLASS, ONE, asked, other]
    )
    assert found.exit_code in {0, 1}
    assert len(table(found)) == 2


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("Deployment", {"replicas": 2}, ["w-0", "w-1"]),
        ("StatefulSet", {}, ["w-0"]),
        ("Job", {"parallelism": 5, "completions": 2}, ["w-0", "w-1"]),
        ("DaemonSet", {}, ["w-0"]),
        ("Deployment", {"replicas": 0}, []),
    ],
)
def test_workloads_bring_their_pods(run, kind, spec, expected):
    template = obj("ResourceClaimTemplate", "t", namespace="ml", spec={"spec": ONE["spec"]})
    made = pod("x")["spec"] | {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    }
    api = "batch/v1" if kind == "Job" else "apps/v1"
    workload = obj(
        kind, "w", namespace="ml", api=api,
        spec={"selector": {}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": made}} | spec,
    )  # fmt: skip
    found = run("allocate", objects=[*GPUS, CLASS, template, workload])
    assert [row[1] for row in table(found)] == expected
    assert [row[2] for row in table(found)] == [f"{name}-gpu" for name in expected]


def test_a_claim_of_a_pod_group_is_shared_by_its_pods(run):
    template = obj("ResourceClaimTemplate", "t", namespace="ml", spec={"spec": ONE["spec"]})
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    group = obj(
        "PodGroup", "g", namespace="ml", api="scheduling.k8s.io/v1alpha2",
        spec={"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [entry]},
    )  # fmt: skip
    members = [
        pod(name, resourceClaims=[entry], schedulingGroup={"podGroupName": "g"}) for name in "ab"
    ]
    found = run("allocate", objects=[*GPUS, CLASS, template, group, *members])
    assert [row[1:6] for row in table(found)] == [
        ["a", "g-gpu", "node-1", "r", "d0"],
        ["b", "g-gpu", "node-1", "(allocated)", "-"],
    ]


def test_a_claim_that_has_its_devices_already_is_shown(run):
    (made,) = json.loads(run("allocate", "-o", "json", objects=[*GPUS, CLASS, ONE]).stdout)["items"]
    found = run("explain", "ml/c", objects=[*GPUS, CLASS, made])
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        "claim ml/c has its devices already:",
        "  request r: gpu.example.com/p/d0",
    ]


def test_a_pod_that_may_run_nowhere_is_told(run):
    asked = pod("a", "c", nodeSelector={"zone": "moon"})
    found = run("allocate", objects=[*GPUS, CLASS, ONE, asked])
    assert found.exit_code == 1
    why = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    assert found.stdout.splitlines()[-1].startswith("pod ml/a: node-1 has the devices, but ")
    assert why in found.stdout
    assert why in run("explain", objects=[*GPUS, CLASS, ONE, asked]).stdout


NETWORK = pool("net", device("d0"), device("d1"), device("d2"), node="")
WORN = node("worn") | {"spec": {"taints": [{"key": "age", "value": "7", "effect": "NoSchedule"}]}}
SMALL = node("small") | {"status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "9"}}}


def asking(name, claim_name, cpu, **spec):
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return pod(name, claim_name, containers=[container], **spec)


def claims(*names):
    return [claim(name, request("r"), namespace="ml") for name in names]


@pytest.mark.parametrize("command", [("allocate",), ("explain",)])
def test_nodes_are_filtered_as_by_the_scheduler(run, command):
    objects = [WORN, SMALL, *NETWORK, CLASS, *claims("c"), asking("a", "c", "64")]
    found = run(*command, objects=objects)
    assert found.exit_code == 1
    why = "1 Insufficient cpu, 1 node(s) had untolerated taint {age: 7}"
    assert f"0/2 nodes are available: {why}." in found.stdout


@pytest.mark.parametrize(
    ("toleration", "exit_code"),
    [
        ({"key": "age", "operator": "Exists"}, 0),
        ({"key": "age", "operator": "Gt", "value": "5"}, 0),
        ({"key": "age", "operator": "Lt", "value": "5"}, 1),
    ],
)
def test_a_tainted_node_takes_pods_that_tolerate_it(run, toleration, exit_code):
    wanted = asking("a", "c", "64", tolerations=[toleration])
    found = run("allocate", objects=[WORN, *NETWORK, CLASS, *claims("c"), wanted])
    assert found.exit_code == exit_code


def test_pods_take_room_from_those_that_come_after_them(run):
    bound = asking("bound", "b", "500m", nodeName="small")
    del bound["spec"]["resourceClaims"]
    pods = [asking("one", "c", "1"), asking("two", "d", "1")]
    found = run("allocate", objects=[SMALL, *NETWORK, CLASS, *claims("c", "d"), bound, *pods])
    assert [row[3] for row in table(found)] == ["small", "-"]
    assert "small has the devices, but 500m of the 1 cpu (DRA053)" in found.stdout


def test_pods_of_a_batch_do_not_overcommit_a_node_together(run):
    pods = [asking("one", "c", "1500m"), asking("two", "d", "1500m")]
    objects = [SMALL, *pool("p", device("d0"), device("d1"), node="small"), CLASS]
    found = run("allocate", "--policy", "optimal", objects=[*objects, *claims("c", "d"), *pods])
    assert [row[3] for row in table(found)] == ["small", "-"]


def test_a_cordoned_node_takes_pods_that_tolerate_its_cordon(run):
    cordoned = node("n") | {"spec": {"unschedulable": True}}
    objects = [cordoned, *NETWORK, CLASS, *claims("c", "d")]
    plain, patient = (
        asking("a", "c", "1"),
        asking("b", "d", "1", tolerations=[{"operator": "Exists"}]),
    )
    found = run("allocate", objects=[*objects, plain, patient])
    assert [row[3] for row in table(found)] == ["-", "n"]
    assert "pod ml/a: n has the devices, but is cordoned (DRA050)" in found.stdout
    assert "0/1 nodes are available: 1 node(s) were unschedulable." in found.stdout
    alone = run("allocate", objects=objects)
    assert alone.exit_code == 1


def test_what_devices_lack_is_told_beside_what_nodes_lack(run):
    pods = [asking("a", "c", "1")]
    objects = [WORN, SMALL, *pool("p", device("d0"), node="worn"), CLASS, *claims("c"), *pods]
    for command in ("allocate", "explain"):
        found = run(command, objects=objects)
        why = "1 cannot allocate all claims, 1 node(s) had untolerated taint {age: 7}"
        assert f"0/2 nodes are available: {why}." in found.stdout
        assert "worn has the devices, but has taint age=7" in found.stdout


def test_a_claim_that_asks_for_nothing_is_served(run):
    found = run("allocate", objects=[*GPUS, CLASS, claim("c", namespace="ml")])
    assert found.exit_code == 0
    assert table(found) == [["ml", "-", "c", "node-1", "-", "-", "-", "-"]]


def test_a_policy_by_name_is_said_in_every_output(run):
    objects = [*GPUS, CLASS, ONE]
    plain, packed = (run("allocate", *more, objects=objects) for more in ((), ("--policy", "pack")))
    assert "policy" not in plain.stdout
    assert packed.stdout == f"{plain.stdout}\npolicy: pack\n"
    (told,) = json.loads(run("allocate", "--policy", "pack", "-o", "json", objects=objects).stdout)[
        "items"
    ]
    assert told["metadata"]["annotations"] == {"dralab.dev/policy": "pack"}
    (told,) = json.loads(run("allocate", "-o", "json", objects=objects).stdout)["items"]
    assert "annotations" not in told["metadata"]


@pytest.mark.parametrize("command", [("explain", "p"), ("what-if", "--cordon", "node-1")])
def test_an_input_without_slices_is_answered(run, command):
    found = run(*command, objects=[node("node-1"), pod("p", schedulingGates=[{"name": "a/b"}])])
    assert found.exit_code == 1
    assert found.stdout
    nowhere = run(*command, objects=[pod("p")])
    assert nowhere.exit_code == 2
    assert "the input has no Node and no ResourceSlice" in nowhere.stderr
