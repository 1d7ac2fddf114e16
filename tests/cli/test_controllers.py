"""`dralab controllers`: the controllers far from the server."""

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.runtime.resources import DEPLOYMENTS, PODS
from processes import Processes


@pytest.mark.thorough
def test_pods_of_a_deployment_come_from_controllers_in_a_process_of_their_own():
    with Processes("--without", "controllers,nodes") as lab:
        lab.dralab("controllers", "controllers")
        container = {"name": "c", "image": "x"}
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        lab.client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        lab.until(lambda: len(lab.client.list(PODS, "default").items) == 2, "controllers")
        assert lab.stop("controllers") == 0


def test_a_controller_that_is_not_there_is_bad_input(tmp_path):
    words = ["controllers", "--kubeconfig", str(tmp_path / "none"), "--without", "jobs"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "unknown controller 'jobs'; known: resourceclaim-controller," in result.stderr


def test_a_server_that_is_not_there_is_one_clear_line(tmp_path):
    path = tmp_path / "config"
    path.write_text("clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n")
    result = CliRunner().invoke(main, ["controllers", "--kubeconfig", str(path)])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: http://127.0.0.1:9 does not answer")
