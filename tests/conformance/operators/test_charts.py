"""Popular charts with their defaults: helm waits until all is ready, and leaves nothing behind.

Containers are simulated: "ready" says that all objects are accepted, hooks run, volumes are bound,
Services get addresses and controllers roll out. DRALAB_CHARTS names a folder of archives that were
pulled before; without it they are pulled, and skipped where that is not possible.
"""

import os
from pathlib import Path

import pytest

from dralab.runtime.resources import NAMESPACES, PODS, SECRETS, SERVICES
from operatorlab import names
from publishedcharts import CHARTS
from waiting import until

PATIENCE = "10m"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(900),
    pytest.mark.dralab(nodes=3, load_balancers="192.0.2.0/24"),
]


def archive(chart, helm, folder):
    """The chart's archive. Skips where it can't be had."""
    ready = Path(os.environ.get("DRALAB_CHARTS", "")) / chart.file
    if ready.is_file():
        return ready
    pulled = helm("pull", *chart.reference, "--destination", str(folder))
    if pulled.returncode:
        pytest.skip(f"{chart.name} can't be pulled: {pulled.stderr.strip()}")
    return folder / chart.file


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_chart_gets_ready_and_goes(running_cluster, client, helm, chart, tmp_path):
    file, name = archive(chart, helm, tmp_path), chart.name
    client.create(NAMESPACES, {"metadata": {"name": name}})
    if chart.secret[0]:
        secret, key = chart.secret
        made = {"metadata": {"name": secret}, "stringData": {key: "secret"}}
        client.create(SECRETS, made, name)
    settings = [word for each in chart.settings for word in ("--set", each)]
    waits = ["--namespace", name, "--wait", "--timeout", PATIENCE]
    done = helm("install", name, str(file), *settings, *waits)
    assert done.returncode == 0, done.stderr
    assert "STATUS: deployed" in done.stdout
    assert names(client, PODS, name)
    done = helm("uninstall", name, *waits)
    assert done.returncode == 0, done.stderr
    until(lambda: names(client, PODS, name) == set() and names(client, SERVICES, name) == set())
