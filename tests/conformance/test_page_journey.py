"""From "my pod waits" to the remedy: the page of `dralab ui`, and the command it gives to kubectl.

`dralab ui` is a program, the cluster is one that runs, kubectl and its shell are real.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import orjson
import pytest

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import NodeOptions, Nodes
from web.chromium import PATIENCE, needs_chromium, tab

pytestmark = [
    *needs_chromium,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
]


@pytest.fixture
def cluster():
    """Two nodes of eight GPUs each."""
    components = [ControlPlane(), Nodes(NodeOptions(nodes=2, drivers=("gpu",)))]
    with Cluster(Options(tls=True), components=components) as found:
        yield found


@pytest.fixture
def shell(cluster):
    """Run a line in a shell whose kubectl talks to the cluster; return what it prints."""
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}

    def run(line, given=None):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            input=given, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("kubectl wait --for=condition=Ready node --all --timeout=60s")
    run("until [ $(kubectl get resourceslices -o name | wc -l) = 2 ]; do sleep 0.2; done")
    return run


@contextmanager
def shown(cluster, browser):
    """Start `dralab ui` and open the address that it prints."""
    words = [sys.executable, "-m", "dralab", "ui", "--kubeconfig", str(cluster.kubeconfig)]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next(filter(None, (re.search(r"open: (\S+)", line) for line in program.stdout)))[
            1
        ]
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.get_by_text("live, as of").wait_for()
        yield page
        page.close()
    finally:
        program.terminate()
        program.wait(30)
        program.stdout.close()


def pods_of(name, count):
    """Return a pod and its claim for GPUs, as `kubectl create -f -` reads them."""
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }
    container = {"name": "c", "image": "pause", "resources": {"claims": [{"name": "gpus"}]}}
    spec = {
        "resourceClaims": [{"name": "gpus", "resourceClaimName": name}],
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return orjson.dumps({"apiVersion": "v1", "kind": "List", "items": [claim, pod]}).decode()


def test_a_pod_that_waits_runs_after_the_remedy_of_the_page(browser, cluster, shell):
    with shown(cluster, browser) as page:
        shell("kubectl create -f -", pods_of("train", 12))
        # The page tells of it by itself: nobody reloads.
        tab(page, "Waiting")
        page.get_by_role("button", name="pod default/train").click()
        page.get_by_role("heading", name="What would help").wait_for()
        help_ = page.get_by_role("listitem").filter(has_text="confirmed: then it fits").first
        command = help_.locator(".command code").first.inner_text()
        assert command.startswith("kubectl ")
        shell(command)
        page.get_by_text("It has its devices.").or_(page.get_by_text("It fits on")).wait_for()
        shell("kubectl wait --for=condition=Ready pod/train --timeout=60s")
        page.get_by_role("button", name="Show its story").click()
        page.get_by_text("Running", exact=False).first.wait_for()
        page.get_by_role("table").filter(has_text="Its devices").first.wait_for()
        page.locator("summary").filter(has_text="Changes").click()
        region = page.get_by_role("region", name="What changed since this page was opened")
        texts = region.get_by_role("button").all_inner_texts()
        assert "pod default/train waits" in texts
        assert any(
            re.match(r"pod default/train has \d+ devices on node-\d", each) for each in texts
        )
        page.keyboard.press("Escape")
        page.goto(page.url.partition("#")[0] + "#/waiting")
        page.get_by_text("Nothing waits for devices.").wait_for()


def test_a_node_that_is_missing_is_tried_on_the_page_and_uncordoned_with_kubectl(
    browser, cluster, shell
):
    shell("kubectl cordon node-0 node-1")
    shell("kubectl create -f -", pods_of("serve", 1))
    with shown(cluster, browser) as page:
        tab(page, "What if")
        page.get_by_role("combobox", name="Change").select_option("uncordon")
        page.get_by_label("Node", exact=True).fill("node-1")
        page.get_by_role("button", name="Add to the list").click()
        page.get_by_role("button", name="What happens?").click()
        nodes = page.get_by_role("list", name="Nodes that change").get_by_role("listitem")
        nodes.get_by_text("uncordoned, + default/serve").wait_for()
        shell("kubectl uncordon node-1")
        shell("kubectl wait --for=condition=Ready pod/serve --timeout=60s")
        page.locator("summary").filter(has_text="Changes").click()
        region = page.get_by_role("region", name="What changed since this page was opened")
        region.get_by_role("button", name="node node-1 is schedulable").wait_for()
        region.get_by_role("button", name="pod default/serve has 1 device on node-1").click()
        page.get_by_role("heading", name="pod default/serve").wait_for()


def test_moves_of_the_page_are_carried_out_with_kubectl(browser, cluster, shell):
    for node, other, name in (("node-0", "node-1", "one"), ("node-1", "node-0", "two")):
        shell(f"kubectl cordon {other}")
        shell("kubectl create -f -", pods_of(name, 4))
        shell(
            f"kubectl wait --for=condition=Ready pod/{name} --timeout=60s; kubectl uncordon {other}"
        )
        assert shell(f"kubectl get pod {name} -o jsonpath={{.spec.nodeName}}") == node
    shell("kubectl create -f -", pods_of("big", 8))
    with shown(cluster, browser) as page:
        tab(page, "What if")
        page.get_by_role("button", name="Which pods have to move?").click()
        page.get_by_text("1 of 1 pods fit, after 1 move").wait_for()
        assert page.get_by_role("rowheader").all_inner_texts()[-2:] == [
            "1.\N{NO-BREAK SPACE}moves",
            "2.\N{NO-BREAK SPACE}starts",
        ]
        page.get_by_text("As kubectl commands").click()
        script = page.locator("details[open] pre").inner_text()
        shell(script)
        shell("kubectl wait --for=condition=Ready pod/big --timeout=60s")
        page.get_by_text("No pod waits.").wait_for()
