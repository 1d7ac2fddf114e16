"""What a scheduler's process is given: words, environment, files."""

from pathlib import Path

import pytest

from dralab.cluster import Cluster, Options
from dralab.simulation.engines.external.schedulers import SchedulerCommand, started


class Ended:
    """A process that has ended."""

    pid = 0

    def poll(self):
        return 0


class RecordingLauncher:
    """Starts nothing, and keeps what it was asked to start."""

    def start(self, words, environment, folder, log):
        self.words, self.environment = words, environment
        return Ended()

    def wait(self, processes, seconds):
        return True

    def kill(self, process):
        raise AssertionError("it has ended")


@pytest.fixture
def launcher(monkeypatch):
    # Where the tests run may be a pod itself.
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return RecordingLauncher()


def asked(launcher, folder, **serving):
    command = SchedulerCommand(name="mine", words=["run", "{server}", "{serviceaccount}"])
    with Cluster(Options(**serving)) as cluster:
        with started([command], folder, cluster, launcher):
            files = {path.name for path in Path(launcher.words[2]).iterdir()}
        return launcher.environment, files, cluster.url


def test_a_scheduler_over_plain_http_is_not_told_that_it_runs_in_a_cluster(launcher, tmp_path):
    environment, files, url = asked(launcher, tmp_path)
    # Programs that find these take the token and the authority of a pod, and end without them.
    assert not [name for name in environment if name.startswith("KUBERNETES_SERVICE_")]
    assert files == {"namespace"}
    assert environment["SERVER"] == url.removeprefix("http://")


def test_a_scheduler_over_https_finds_what_a_pod_finds(launcher, tmp_path):
    environment, files, url = asked(launcher, tmp_path, tls=True)
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    assert url == f"https://{host}:{port}"
    assert files == {"namespace", "token", "ca.crt"}
