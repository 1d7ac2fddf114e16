"""How commands reach a cluster."""

import click
import pytest
from click.testing import CliRunner

from dralab.cli._connection import ClusterConnection, RequiredConnection
from dralab.cli._options import options
from dralab.cli.main import main
from dralab.cluster import Cluster, Options

KUBECONFIG = """
current-context: lab
contexts:
- {name: lab, context: {cluster: lab, user: me}}
- {name: other, context: {cluster: other, user: me}}
clusters:
- {name: lab, cluster: {server: "http://lab:1"}}
- {name: other, cluster: {server: "http://other:2"}}
users:
- {name: me, user: {token: t0}}
"""


@click.command()
@options
def needs(connection: RequiredConnection):
    access = connection.access()
    click.echo(f"{access.server} {access.token}")


@click.command()
@options
def may(connection: ClusterConnection):
    click.echo("a cluster" if connection else "none")


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return str(path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "http://lab:1 t0"),
        (["--context", "other"], "http://other:2 t0"),
        (["--server", "http://here:3/"], "http://here:3 t0"),
    ],
)
def test_context_and_server_choose_among_what_a_kubeconfig_says(kubeconfig, options, expected):
    result = CliRunner().invoke(needs, ["--kubeconfig", kubeconfig, *options])
    assert result.output.strip() == expected


def test_a_server_alone_is_asked_without_credentials():
    result = CliRunner().invoke(needs, ["--server", "http://here:3"], env={"KUBECONFIG": None})
    assert result.output.strip() == "http://here:3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Missing option '--kubeconfig' or '--server'."),
        (["--server", "here:3"], "'here:3' is not a URL that starts with http:// or https://"),
        (["--server", "http://here:3", "--context", "x"], "--context needs --kubeconfig"),
    ],
)
def test_a_cluster_that_is_not_named_is_a_usage_error(options, message):
    result = CliRunner().invoke(needs, options, env={"KUBECONFIG": None})
    assert result.exit_code == 2
    assert message in result.output


def test_the_environment_names_a_cluster_only_where_one_is_needed(kubeconfig):
    environment = {"KUBECONFIG": kubeconfig}
    assert CliRunner().invoke(needs, [], env=environment).output.strip() == "http://lab:1 t0"
    assert CliRunner().invoke(may, [], env=environment).output.strip() == "none"


def test_a_client_has_an_answer_of_the_server():
    with Cluster(Options()) as cluster:
        ClusterConnection(kubeconfig=cluster.kubeconfig, context="", server="").client().close()


@pytest.mark.parametrize("command", [["scheduler"], ["controllers"], ["node", "--name", "n"]])
def test_every_part_says_which_server_does_not_answer(command):
    result = CliRunner().invoke(main, [*command, "--server", "http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "127.0.0.1:1" in result.output
