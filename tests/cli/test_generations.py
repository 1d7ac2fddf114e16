"""The commands about older generations, on small manifests of our own."""

import json

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main

POOLS = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: pool-a}
spec:
  driver: toys
  nodeName: node-a
  devices:
  - name: d0
    attributes: [{name: size, quantityValue: 10Gi}]
    claimResourcesProvided: [{name: memory, capacity: 1Gi, blockSize: 256Mi}]
  - name: d1
    attributes: [{name: size, quantityValue: 20Gi}]
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: toy}
spec: {definition: {driver: toys}}
"""
POD = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClaim
metadata: {name: shape, namespace: default}
spec:
  devices:
  - name: toy
    allOf: [{class: toy, requests: {memory: 100Mi}}]
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers: [{name: c, devices: [{name: toy}]}]
  deviceClaims: {template: {claimName: shape}}
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "pools.yaml").write_text(POOLS)
    (tmp_path / "pod.yaml").write_text(POD)
    return [str(tmp_path / "pools.yaml"), str(tmp_path / "pod.yaml")]


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def test_allocate_prints_what_a_pod_gets_and_rounds_to_blocks(files):
    result = run("allocate", "-f", files[0], "-f", files[1], "-o", "json")
    assert result.exit_code == 0, result.output
    [claim] = json.loads(result.stdout)["items"]
    [allocation] = claim["status"]["allocations"]
    assert allocation["deviceName"] == "d0"
    assert allocation["allocations"] == [{"name": "memory", "allocation": "256Mi"}]


def test_allocate_says_no_with_code_1(files, tmp_path):
    (tmp_path / "big.yaml").write_text(POD.replace("100Mi", "100Gi"))
    result = run("allocate", "-f", files[0], "-f", str(tmp_path / "big.yaml"))
    assert result.exit_code == 1
    assert "pod default/p: " in result.stdout
    assert "on one node" in result.stdout


def test_allocate_names_a_pod_that_is_not_there(files):
    result = run("allocate", "-f", files[0], "-f", files[1], "nobody")
    assert result.exit_code == 2
    assert "no pod 'nobody' waits; known pods: default/p" in result.stderr


def test_bad_input_is_told_with_file_and_line(files, tmp_path):
    (tmp_path / "bad.yaml").write_text(POOLS.replace("10Gi", "much"))
    result = run("allocate", "-f", str(tmp_path / "bad.yaml"), "-f", files[1])
    assert result.exit_code == 2
    assert (
        "bad.yaml:9: DevicePool pool-a: spec.devices[0].attributes[0].quantityValue"
        in result.stderr
    )


def test_a_field_in_another_case_is_told_with_its_line(files, tmp_path):
    text = POD.replace(
        "spec:\n  devices:\n  - name: toy\n", "Spec:\n  Devices:\n  - Name: toy\n", 1
    )
    (tmp_path / "bad.yaml").write_text(text.replace("{memory: 100Mi}", "[memory]"))
    result = run("allocate", "-f", files[0], "-f", str(tmp_path / "bad.yaml"))
    assert result.exit_code == 2
    assert "bad.yaml:7: DeviceClaim shape: spec.devices[0].allOf[0].requests: " in result.stderr


def test_allocations_counts_lists_and_finds_the_first(files):
    arguments = ["enumerate", "allocations", "-f", files[0], files[1]]
    assert run(*arguments, "--count").stdout == "1\n"
    assert run(*arguments, "--limit", "1").stdout == "node-a: pool-a/d0\n"
    assert run(*arguments, "--list", "-o", "json").exit_code == 0


def test_validate_reports_states_and_repairs(files, tmp_path):
    (tmp_path / "old.yaml").write_text(
        POOLS.replace("spec: {definition: {driver: toys}}", "spec: {driver: toys}")
    )
    result = run("validate", "-f", str(tmp_path / "old.yaml"), "--write", str(tmp_path / "mended"))
    assert result.exit_code == 0
    assert "spec.driver: read as spec.definition.driver" in result.stdout
    assert result.stdout.endswith("1 valid, 1 legacy, 0 invalid\n")
    mended = list(yaml.safe_load_all((tmp_path / "mended" / "old.yaml").read_text()))
    assert mended[1]["spec"] == {"definition": {"driver": "toys"}}
    assert run("validate", "--strict", "-f", str(tmp_path / "old.yaml")).exit_code == 1


def test_claims_are_written_as_they_are_read(files, tmp_path):
    result = run("validate", files[1], "--write", str(tmp_path / "mended"))
    assert result.exit_code == 0, result.output
    claim, _ = yaml.safe_load_all((tmp_path / "mended" / "pod.yaml").read_text())
    assert claim["spec"]["devices"][0]["name"] == "toy"


def test_input_without_a_device_api_asks_for_one(tmp_path):
    (tmp_path / "x.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    result = run("validate", "-f", str(tmp_path / "x.yaml"))
    assert result.exit_code == 2
    assert "To choose an API, add --api" in result.stderr


@pytest.mark.parametrize(
    ("api", "attributes", "expression", "code"),
    [
        ("k8srm", "- {name: memory, quantityValue: 10Gi}", "device.memory >= '10Gi'", 0),
        ("k8srm", "- {name: memory, quantityValue: 10Gi}", "device.memory > '10Gi'", 1),
        ("k8srm", "[]", "device.memory > '10Gi'", 2),
        ("evolution", "[]", "device.stringAttributes['nope'] == ''", 0),
        ("v1", "{model: {string: x}}", "device.attributes[''].model == 'x'", 0),
    ],
)
def test_cel_evaluates_in_the_environment_of_a_generation(
    tmp_path, api, attributes, expression, code
):
    (tmp_path / "a.yaml").write_text(attributes)
    result = run("cel", "--api", api, "--attributes", str(tmp_path / "a.yaml"), expression)
    assert result.exit_code == code, result.output


def test_the_first_stages_have_their_own_files(tmp_path):
    nodes = [
        {
            "name": "n",
            "pools": [
                {
                    "name": "p",
                    "driver": "k",
                    "resources": [
                        {"name": "r", "capacities": [{"name": "pods", "counter": {"capacity": 1}}]}
                    ],
                }
            ],
        }
    ]
    claim = {
        "podClaim": {
            "name": "pod",
            "claims": [
                {"name": "pod", "capacities": [{"capacity": "pods", "counter": {"request": 1}}]}
            ],
        }
    }
    (tmp_path / "n.yaml").write_text(yaml.safe_dump(nodes))
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(claim))
    result = run("allocate", "-f", str(tmp_path / "n.yaml"), "-f", str(tmp_path / "c.yaml"), "-v")
    assert result.exit_code == 0
    assert 'node "n" (100): succeeded' in result.stdout
    assert "pod/pod: r: pods = 1" in result.stdout


def test_compare_shows_one_scenario_in_two_generations(files, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD.replace(", requests: {memory: 100Mi}", ""))
    result = run("compare", *files, "--to", "v1")
    assert result.exit_code == 0, result.output
    assert "p    yes   node-a: pool-a/d0  node-a: pool-a/d0" in result.stdout
    converted = run("convert", "--to", "evolution", *files)
    (tmp_path / "evolution.yaml").write_text(converted.stdout)
    (tmp_path / "both.yaml").write_text("---\n".join([POOLS, (tmp_path / "pod.yaml").read_text()]))
    result = run(
        "compare", str(tmp_path / "both.yaml"), str(tmp_path / "evolution.yaml"), "-o", "json"
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["same"] is True


def test_convert_names_what_is_lost_and_says_so_with_code_1(files):
    result = run("convert", "--to", "v1", *files)
    assert result.exit_code == 1
    assert "requests memory: 100Mi: a total over several devices" in result.stderr


def test_allocate_knows_todays_api_too(files, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD.replace(", requests: {memory: 100Mi}", ""))
    (tmp_path / "today.yaml").write_text(run("convert", "--to", "v1", *files).stdout)
    result = run("allocate", "-f", str(tmp_path / "today.yaml"), "-o", "json")
    [claim] = json.loads(result.stdout)["items"]
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"


NODES = """\
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {zone: a}}
spec: {taints: [{key: age, value: "7", effect: NoSchedule}]}
status: {allocatable: {cpu: "2", pods: "9"}}
"""


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("", "1 node(s) had untolerated taint {age: 7}"),
        ("tolerations: [{operator: Exists}]", ""),
        (
            "tolerations: [{operator: Exists}]\n  nodeSelector: {zone: b}",
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            "tolerations: [{operator: Exists}]\n  resources: {requests: {cpu: '64'}}",
            "1 Insufficient cpu",
        ),
    ],
)
def test_older_generations_filter_nodes_as_the_scheduler_does(files, tmp_path, spec, why):
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "pod.yaml").write_text(POD + f"  {spec}\n")
    result = run("allocate", "-f", str(tmp_path / "nodes.yaml"), "-f", files[0], "-f", files[1])
    assert result.exit_code == (1 if why else 0), result.output
    if why:
        assert f"0/1 nodes are available: {why}." in result.output


def test_amounts_that_are_not_quantities_are_refused(files, tmp_path):
    (tmp_path / "nodes.yaml").write_text(NODES.replace('"2"', '"many"'))
    result = run("allocate", "-f", str(tmp_path / "nodes.yaml"), "-f", files[0], "-f", files[1])
    assert result.exit_code == 2
    assert 'status.allocatable.cpu: Invalid value: "many": must be a quantity' in result.output


EVOLUTION_POD = """\
apiVersion: resource.k8s.io/v1alpha2
kind: DeviceClass
metadata: {name: toy}
requirements: [{deviceSelector: "device.driverName == 'toys'"}]
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {requests: [{deviceClassName: toy}]}
---
apiVersion: resource.k8s.io/v1alpha2
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers: [{name: c}]
  resourceClaims: [{name: toy, resourceClaimName: c}]
"""


def test_pools_of_k8srm_serve_pods_of_evolution_and_are_said_to_be_converted(tmp_path):
    pools, pod = tmp_path / "pools.yaml", tmp_path / "pod.yaml"
    pools.write_text(POOLS.partition("---")[0].replace(", blockSize: 256Mi", ""))
    pod.write_text(EVOLUTION_POD)
    result = run("allocate", "--api", "evolution", "-f", str(pools), "-f", str(pod))
    assert "d0       pool-a   toys" in result.stdout
    assert "converted from k8srm to evolution: 1 of 4 documents" in result.stderr
    result = run("allocate", "--api", "k8srm", "-f", str(pools), "-f", str(pod))
    assert result.exit_code == 2
    assert (
        "of evolution, not of k8srm: convert it with `dralab convert --to k8srm`" in result.stderr
    )
    result = run("allocate", "--api", "evolution", "-f", str(pod))
    assert "there are no devices: no ResourcePool" in result.stdout


def test_a_pod_with_device_claims_alone_tells_its_generation(files):
    result = run("convert", "--to", "v1", files[1])
    assert "resourceClaimTemplateName: shape" in result.stdout
    assert "requests memory: 100Mi" in result.stderr


def test_nothing_to_allocate_is_said(files):
    result = run("allocate", "-f", files[0])
    assert result.exit_code == 0
    assert "nothing in the input asks for devices of k8srm" in result.stderr


def test_allocate_and_explain_read_older_generations(files):
    pools, pod = files
    found = run("explain", "-f", pools, "-f", pod)
    assert found.exit_code == 0
    assert "pod default/p\nfits on node node-a:\n  toy of claim p-" in found.stdout
    allocated = run("allocate", "-f", pools, "-f", pod)
    assert allocated.stdout.splitlines()[1].split()[3:] == ["node-a", "toy", "d0", "pool-a", "toys"]
    elsewhere = run("allocate", "-f", pools, "-f", pod, "--node", "node-b", "-o", "json")
    assert elsewhere.exit_code == 1
    refused = run("allocate", "-f", pools, "-f", pod, "--policy", "pack")
    assert "k8srm places pods in its own order: omit --policy pack" in refused.stderr
    unknown = run("explain", "-f", pools, "-f", pod, "q")
    assert "no pod 'q' requests devices; those that do: default/p" in unknown.stderr


def test_explain_says_why_a_pod_of_an_older_generation_waits(files):
    pools, pod = files
    told = run("explain", "-f", pools, "-f", pod, "--node", "node-b", "-o", "json")
    [answer] = json.loads(told.stdout)
    assert (answer["object"], answer["fits"]) == ("pod default/p", False)
    assert answer["reason"]


@pytest.mark.parametrize(
    ("device", "expression", "answer"),
    [
        (
            "capacity: {memory: {value: 40Gi}}",
            "device.capacity['toys.example.com'].memory.isGreaterThan(quantity('20Gi'))",
            "true",
        ),
        ("allowMultipleAllocations: true", "device.allowMultipleAllocations", "true"),
        # Attributes that are called like fields of a device.
        (
            "capacity: {string: large}",
            "device.attributes['toys.example.com'].capacity == 'large'",
            "true",
        ),
        (
            "attributes: {model: {string: a}}\ncapacity: {memory: {value: 1Gi}}",
            "device.attributes['toys.example.com'].model == 'b'",
            "false",
        ),
    ],
)
def test_cel_sees_all_that_a_selector_of_v1_sees(device, expression, answer, tmp_path):
    file = tmp_path / "device.yaml"
    file.write_text(device)
    where = ["--driver", "toys.example.com", "--attributes", str(file)]
    result = CliRunner().invoke(main, ["cel", *where, expression])
    assert result.stdout == f"{answer}\n", result.output


TODAY_ALL = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: toys.example.com
  nodeName: n
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  devices: [{name: d0}, {name: d1}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: toy}
spec: {selectors: [{cel: {expression: "device.driver == 'toys.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: all}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: toy, allocationMode: All}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: first}
spec:
  spec:
    devices:
      requests:
      - {name: r, firstAvailable: [{name: a, deviceClassName: toy, count: 2}, {name: b, deviceClassName: toy}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: x}]}}]
  resourceClaims: [{name: x, resourceClaimTemplateName: all}]
"""


@pytest.mark.parametrize("command", ["compare", "convert"])
@pytest.mark.parametrize(
    ("target", "lost"),
    [
        (
            "evolution",
            ["claim default/all: allocationMode All", "claim default/first: r.firstAvailable"],
        ),
        ("k8srm", ["claim default/all: allocationMode All"]),
    ],
)
def test_each_loss_of_a_conversion_has_a_word(command, target, lost, tmp_path):
    (tmp_path / "v1.yaml").write_text(TODAY_ALL)
    option = "--with" if command == "compare" else "--to"
    result = run(command, str(tmp_path / "v1.yaml"), option, target)
    assert result.exit_code == 1
    told = [line for line in result.stderr.splitlines() if line.startswith("lost: ")]
    assert [line.split(": ")[1:3] for line in told] == [each.split(": ") for each in lost]


def test_a_pod_of_one_input_alone_is_not_unschedulable(files, tmp_path):
    (tmp_path / "both.yaml").write_text(f"{POOLS}---\n{POD}")
    converted = run("convert", "--to", "evolution", *files).stdout
    (tmp_path / "evolution.yaml").write_text(converted.replace("name: p\n", "name: q\n"))
    result = run("compare", str(tmp_path / "both.yaml"), str(tmp_path / "evolution.yaml"))
    assert result.exit_code == 1
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert rows["p"].endswith("not in the input")
    assert " ".join(rows["q"].split()) == "q NO not in the input node-a: pool-a/d0"
    assert "unschedulable" not in result.stdout


def test_a_score_is_a_table_json_and_a_picture(files, tmp_path):
    drawn = tmp_path / "score.svg"
    options = ["--to", "v1", "--with", "evolution", "--score", "--times", "3"]
    result = run("compare", *files, *options, "--write", str(drawn))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split() == ["K8SRM", "V1", "EVOLUTION"]
    assert result.stdout.splitlines()[1].startswith("pods placed")
    assert drawn.read_text().startswith("<svg")
    told = json.loads(run("compare", *files, *options, "-o", "json").stdout)
    assert told["generations"]["k8srm"]["pods"] == 3
    assert {each["field"] for each in told["lost"]} >= {"requests memory: 100Mi"}
    assert run("compare", *files, "--to", "v1", "--times", "2").exit_code == 2


def test_findings_of_one_rule_are_shown_once_whatever_the_value(tmp_path):
    claim = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": "c"},
        "spec": {"claims": [{"name": "a", "deviceClass": ["x"]}, {"name": "b", "deviceClass": 5}]},
    }
    file = tmp_path / "claim.yaml"
    file.write_text(yaml.safe_dump(claim))
    shown = CliRunner().invoke(main, ["validate", "-f", str(file)]).stdout
    assert 'deviceClass: Invalid value: ["x"]: must be a string (and 1 more of this kind)' in shown
    assert "claims[1]" not in shown
