"""The manifests of the example of a cluster whose nodes come and go."""

from pathlib import Path

import yaml

from autoscaledlab import autoscaled
from dralab.runtime.client import Resource
from dralab.runtime.resources import resource_of

EXAMPLE = Path(__file__).parents[3] / "examples/66-autoscaled-cluster"
GUIDE = Path(__file__).parents[3] / "docs/guides/autoscaling.md"


def apply(lab, name):
    kinds = lab.cluster.server.resources.kinds
    for body in yaml.safe_load_all((EXAMPLE / name).read_text()):
        lab.client.create(resource_of(kinds, body), body, body["metadata"].get("namespace", ""))


def test_five_pods_get_three_nodes_and_one_is_left_for_the_last_pod():
    with autoscaled("cluster-autoscaler", EXAMPLE / "quick.yaml") as lab:
        apply(lab, "groups.yaml")
        apply(lab, "train.yaml")
        lab.wait(60)
        assert lab.nodes() == ["gpu-0", "gpu-1", "gpu-2"]
        assert None not in lab.places().values()
        deployments = Resource("apps", "v1", "deployments")
        lab.client.patch(deployments, "train", {"spec": {"replicas": 1}}, "default")
        lab.wait(180)
        assert len(lab.nodes()) == 1


def test_karpenter_adds_a_node_with_devices_of_the_catalogue():
    with autoscaled("karpenter") as lab:
        apply(lab, "nodepool.yaml")
        apply(lab, "pods.yaml")
        lab.wait(30)
        assert lab.places()["serve"] == "default-l40s-spot-0"
        assert None not in lab.places().values()


def test_the_guide_shows_the_template_of_the_example():
    shown = GUIDE.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert "ResourceSlice" in shown
    assert shown in (EXAMPLE / "groups.yaml").read_text()
