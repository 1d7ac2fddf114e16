"""`dralab user add`: a kubeconfig with a client certificate."""

import stat

import pytest
from click.testing import CliRunner

from authorities import request
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.controllers.certificates import Authority, CertificateSigner
from dralab.kernel.randomness import Randomness
from dralab.runtime.kubeconfig import read
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import CERTIFICATE_REQUESTS


class Signer:
    """The one controller that is needed here."""

    def start(self, cluster):
        self.engine = LiveEngine(name="signer", clock=cluster.clock)
        self.manager = Manager(self.engine, cluster.client, Randomness(1))
        CertificateSigner(self.manager, Authority(*cluster.signing_files))
        self.manager.start()
        self.engine.start()

    def stop(self):
        self.manager.stop()
        self.engine.stop()


@pytest.fixture(scope="module")
def cluster():
    with Cluster(Options(tls=True), components=[Signer()]) as cluster:
        yield cluster


def run(cluster, *args):
    return CliRunner().invoke(main, ["user", "add", *args, "--kubeconfig", str(cluster.kubeconfig)])


def test_a_user_gets_a_kubeconfig_that_works(cluster, tmp_path):
    file = tmp_path / "jane.kubeconfig"
    result = run(cluster, "jane doe", "--group", "a", "--group", "b", "--write", str(file))
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    access = read(file)
    assert not access.token
    client = RemoteClient(access)
    try:
        # A request says who sent it.
        wanted = cluster.client.list(CERTIFICATE_REQUESTS).items
        assert wanted == [], "what was needed for it is gone"
        body = {"metadata": {"name": "x"}, "spec": {"usages": ["any"], "signerName": "a.b/c"}}
        body["spec"]["request"] = request()
        made = client.create(CERTIFICATE_REQUESTS, body)
        assert made["spec"]["username"] == "jane doe"
        assert made["spec"]["groups"] == ["a", "b", "system:authenticated"]
    finally:
        client.close()


def test_a_superuser_is_not_made_this_way(cluster):
    result = run(cluster, "root", "--group", "system:masters")
    assert result.exit_code == 1
    assert "signer with system:masters group is not allowed" in result.output


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["jane", "--expires", "5m"], "must be at least 10m"),
        (["jane", "--group", ""], "must not be empty"),
        (["x" * 70], "not a name for a certificate"),
    ],
)
def test_what_cannot_be_a_user_is_told(cluster, args, why):
    result = run(cluster, *args)
    assert (result.exit_code, why in result.output) == (2, True), result.output


def test_a_server_without_tls_has_no_certificates():
    with Cluster() as cluster:
        result = run(cluster, "jane")
    assert (result.exit_code, "is served without TLS" in result.output) == (2, True)
