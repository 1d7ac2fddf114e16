"""Scheduler, controllers and node of one release beside a server of a newer one."""

import sys

import pytest

from dralab.api.releases import versions
from dralab.runtime.resources import CLAIMS, NODES, SLICES
from processes import Processes


def begun(lab, part, *options):
    """Run a part until it is ready."""
    command = [sys.executable, "-m", "dralab", part, "--kubeconfig", lab.kubeconfig, *options]
    lab.run(part, command)
    lab.until(lambda: "ready" in lab.said(part), part)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("server", "parts"),
    [("1.37", "1.34"), pytest.param("1.36", "1.33", marks=pytest.mark.conformance)],
)
def test_a_pod_gets_its_device_from_parts_that_are_older_than_the_server(server, parts):
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    of_parts = ["--kubernetes-version", parts]
    with Processes("--kubernetes-version", server, "--without", "scheduler,controllers") as lab:
        begun(lab, "scheduler", *of_parts)
        begun(lab, "controllers")
        begun(lab, "node", "--name", "n1", *of_parts, *lab.shared)
        lab.driver("gpu", "n1")
        lab.until(lambda: lab.client.list(SLICES).items, "driver")
        assert (
            lab.client.get(NODES, "n1")["status"]["nodeInfo"]["kubeletVersion"]
            == (versions()[parts])
        )
        lab.create_pod()
        lab.until(lambda: lab.phase() == "Running")
        (claim,) = lab.client.list(CLAIMS).items
        assert claim["status"]["allocation"]["devices"]["results"][0]["driver"] == (
            "gpu.example.com"
        )
