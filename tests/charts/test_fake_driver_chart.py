"""The chart of the classic fake driver, and its pods run by dralab."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from chartlab import all_ready, create, until
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import FAKE_NODE, PROCESS, NodeOptions, Nodes
from dralab.drivers.fake.demo import children, parents
from dralab.prototypes.shape import Shape
from dralab.runtime.client import Resource
from dralab.runtime.resources import (
    ALLOCATION_STATES,
    CLASSIC_CLAIMS,
    CLASSIC_CLASSES,
    NAMED_SLICES,
    NAMESPACES,
    PODS,
)

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/fake-dra-driver"
RENDERED = ROOT / "examples/52-fake-driver-chart/rendered.yaml"
HELM = os.environ.get("DRALAB_HELM") or shutil.which("helm")
KUBECTL = os.environ.get("DRALAB_KUBECTL") or shutil.which("kubectl")
NEEDS_HELM = pytest.mark.skipif(not HELM, reason="no helm on the PATH, and DRALAB_HELM names none")
PARENTS = parents(FAKE_NODE)
IMAGE = "dralab.dev/fake-dra-driver"


def rendered():
    return [obj for obj in yaml.safe_load_all(RENDERED.read_text()) if obj]


def helm(*words):
    return subprocess.run(
        [HELM, "template", "fake-dra-driver", str(CHART), *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def schema():
    return json.loads((CHART / "values.schema.json").read_text())


def wrong(values):
    return [str(each) for each in Shape(schema()).findings(values)]


def test_the_values_of_the_chart_have_a_schema_of_all_of_them():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert wrong(values) == []
    assert values.keys() == schema()["properties"].keys() - {"global"}
    assert wrong({"structuredParameter": True}) == [
        'structuredParameter: Forbidden: unknown field, did you mean "structuredParameters"?'
    ]
    assert wrong({"cdiRoot": "var/run/cdi"}) == [
        "cdiRoot: Invalid value: \"var/run/cdi\": cdiRoot in body should match '^/'"
    ]


@NEEDS_HELM
@pytest.mark.parametrize(
    "value", ["image.pullPolicy=Sometimes", "controller.replicas=2", "structuredParameter=true"]
)
def test_helm_refuses_values_that_the_chart_does_not_know(value):
    done = helm("--set", value)
    assert done.returncode != 0
    assert value.partition("=")[0].rpartition(".")[2] in done.stderr


@NEEDS_HELM
def test_the_rendered_manifest_is_what_helm_makes_of_the_chart():
    done = helm("-n", "fake-system")
    assert done.returncode == 0, done.stderr
    made = [obj for obj in yaml.safe_load_all(done.stdout) if obj]
    first, *rest = rendered()
    assert first["kind"] == "Namespace"
    assert sorted(rest, key=named) == sorted(made, key=named)


def named(obj):
    return obj["kind"], obj["metadata"]["name"]


@NEEDS_HELM
def test_the_chart_refuses_the_default_namespace_unless_allowed():
    done = helm("-n", "default")
    assert done.returncode != 0
    assert "allowDefaultNamespace" in done.stderr
    assert helm("-n", "default", "--set", "allowDefaultNamespace=true").returncode == 0


def test_values_and_manifest_name_the_same_image_and_places():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    containers = [
        container
        for obj in rendered()
        if obj["kind"] in {"Deployment", "DaemonSet"}
        for kind in ("initContainers", "containers")
        for container in obj["spec"]["template"]["spec"].get(kind, ())
    ]
    assert len(containers) == 3
    for container in containers:
        assert container["image"] == f"{values['image']['repository']}:{version}"
    env = {item["name"]: item.get("value") for each in containers for item in each["env"]}
    assert env["CDI_ROOT"] == values["cdiRoot"]
    assert env["KUBELET_ROOT"] == values["kubeletRoot"]


@contextmanager
def cluster_of_one_node():
    """A cluster whose node runs the chart's image as processes of this machine."""
    pytest.importorskip("grpc")
    # Not below pytest's directory: a socket's path has 107 characters at most.
    place = Path(tempfile.mkdtemp(prefix="k"))
    wanted = NodeOptions(
        named=[FAKE_NODE], classic=True, root=place, runtime=PROCESS,
        images={IMAGE: [sys.executable, "-m", "dralab"]},
    )  # fmt: skip
    nodes = Nodes(wanted)
    try:
        options = Options(tls=True, profiles=("v1", "classic"))
        with Cluster(options, components=[ControlPlane(), nodes]) as cluster:
            yield cluster, nodes
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.conformance
def test_its_pods_run_the_driver():
    with cluster_of_one_node() as (cluster, nodes):
        create(cluster.client, rendered())
        runs_the_driver(cluster.client)
        shows_what_the_reference_says(cluster.client, nodes, [(1,)])


@pytest.mark.conformance
@NEEDS_HELM
@pytest.mark.parametrize("flavour", ["classic", "structured"])
def test_helm_installs_the_driver_for_all_demonstrations_and_takes_it_away_again(flavour):
    with cluster_of_one_node() as (cluster, nodes):
        client = cluster.client
        environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
        before = names_of(client)

        def run(program, *words):
            done = subprocess.run(
                [program, *words], env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        release = ("-n", "fake-system", "fake-dra-driver")
        choice = f"structuredParameters={'true' if flavour == 'structured' else 'false'}"
        for _ in range(2):  # the second time it is an upgrade that changes nothing
            run(HELM, "upgrade", "-i", "--create-namespace", *release, str(CHART), "--set", choice)
        runs_the_driver(client)
        if KUBECTL:
            shown = run(KUBECTL, "get", "pod", "-n", "fake-system", "--no-headers")
            assert [line.split()[1:3] for line in shown.splitlines()] == [["1/1", "Running"]] * 2
        shows_what_the_reference_says(client, nodes, [(1, 2, 3, 4), (5,), (6,), (7,)])
        client.delete(CLASSIC_CLASSES, "structured.fake.3-shake.com")  # demonstration 7's own
        run(HELM, "uninstall", *release)
        until(lambda: client.list(PODS, "fake-system").items, lambda pods: not pods)
        client.delete(NAMESPACES, "fake-system")
        until(lambda: names_of(client), lambda names: names == before)


def names_of(client):
    """What an installation leaves its traces in."""
    roles = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
    kinds = (PODS, CLASSIC_CLASSES, CLASSIC_CLAIMS, ALLOCATION_STATES, NAMESPACES, roles)
    return {kind: {obj["metadata"]["name"] for obj in client.list(kind).items} for kind in kinds}


def runs_the_driver(client):
    pods = until(lambda: client.list(PODS, "fake-system").items, lambda p: all_ready(p, 2))
    assert len(pods) == 2
    until(
        lambda: client.list(ALLOCATION_STATES, "fake-system").items,
        lambda items: [item["status"] for item in items] == ["Ready"],
    )
    until(lambda: client.list(NAMED_SLICES).items, lambda items: len(items) == 1)


def shows_what_the_reference_says(client, nodes, rounds):
    """Run demonstrations, those of a round beside each other, and look into their containers."""
    for numbers in rounds:
        spaces = [f"test{number}" for number in numbers]
        for number in numbers:
            folder = "53-fake-driver-structured" if number == 7 else "50-fake-driver"
            manifest = ROOT / "examples" / folder / f"fake-test{number}.yaml"
            create(client, yaml.safe_load_all(manifest.read_text()))
        seen = {}
        for space in spaces:
            count = 1 if space in {"test2", "test4", "test5", "test7"} else 2
            pods = until(
                lambda at=space: client.list(PODS, at).items, lambda p, n=count: all_ready(p, n)
            )
            seen[space] = [
                devices_in(nodes, pod, container["name"])
                for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"])
                for container in pod["spec"]["containers"]
            ]
        CHECKS[numbers](*(seen[space] for space in spaces))
        for space in spaces:
            client.delete(NAMESPACES, space)
        until(
            lambda: client.list(ALLOCATION_STATES, "fake-system").items,
            lambda items: set(items[0]["spec"]) == {"allocatableDevice"},
        )
        until(lambda: client.list(CLASSIC_CLAIMS).items, lambda claims: not claims)


def devices_in(nodes, pod, container):
    log = nodes.kubelets.find_container(pod, container).log

    def found():
        text = "".join(f"{line}\n" for _, line in log.read()[0])
        return dict(re.findall(r"^export FAKE_DEVICE_(\d+)='(.+)'$", text, re.MULTILINE))

    names = until(found, bool)
    return [names[str(number)] for number in range(len(names))]


def first_two(one):
    assert len(one[0]) == len(one[1]) == 1
    assert one[0] != one[1]


def first_four(one, two, three, four):
    assert one[0] != one[1]
    assert two[0] == two[1]
    assert three[0] == three[1]
    assert len(four[0]) == 4
    assert sorted([*one[0], *one[1], *two[0], *three[0], *four[0]]) == sorted(PARENTS)


def split_in(parts, several):
    """Each container has all parts of four devices, and no two have a part of the same."""
    parent_of = {child: parent for parent in PARENTS for child in children(parent, parts)}
    used = Counter(parent_of[name] for names in several for name in names)
    assert all(len(names) == 4 * parts for names in several)
    assert set(used.values()) == {parts}
    assert len(used) == 4 * len(several)


CHECKS = {
    (1,): first_two,
    (1, 2, 3, 4): first_four,
    (5,): lambda five: split_in(2, five),
    (6,): lambda six: split_in(5, six),
    (7,): lambda seven: split_in(2, seven),
}


def test_the_arguments_of_the_chart_are_arguments_of_the_programs():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    containers = {
        container["name"]: container
        for obj in rendered()
        if obj["kind"] in {"Deployment", "DaemonSet"}
        for container in obj["spec"]["template"]["spec"]["containers"]
    }
    for name, part in (("controller", "controller"), ("plugin", "kubeletPlugin")):
        args = containers[name]["args"]
        assert args[3:] == values[part]["args"] == ["--logging-format=json", "-v=5"]
        done = CliRunner().invoke(main, [*args, "--help"])
        assert done.exit_code == 0, done.output


@NEEDS_HELM
def test_labels_and_containers_can_be_overridden():
    limits = "containers.{}.resources.limits.cpu=1"
    settings = [
        "selectorLabelsOverride.app=mine",
        f"controller.{limits.format('controller')}",
        f"kubeletPlugin.{limits.format('init')}",
    ]
    done = helm("-n", "fake-system", *(word for each in settings for word in ("--set", each)))
    made = {obj["kind"]: obj for obj in yaml.safe_load_all(done.stdout) if obj}
    for kind, component in (("Deployment", "controller"), ("DaemonSet", "kubeletplugin")):
        labels = {"app": "mine", "app.kubernetes.io/component": component}
        assert made[kind]["spec"]["selector"]["matchLabels"] == labels
        assert made[kind]["spec"]["template"]["metadata"]["labels"] == labels
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["resources"] == {"limits": {"cpu": 1}}
