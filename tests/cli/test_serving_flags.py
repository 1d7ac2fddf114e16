"""Flags of the server: what goes together, and what is refused."""

from pathlib import Path

import click
import pytest

from dralab.apiserver.http.connections import tls
from dralab.apiserver.http.connections.listening import ServingError
from dralab.cli import apiserver
from dralab.cli._serving import files_of, listening_on, range_of, switches_of


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("127.0.0.1:1", None, None), "127.0.0.1:1"),
        ((None, None, 6443), "127.0.0.1:6443"),
        ((None, "0.0.0.0", None), "0.0.0.0:0"),  # noqa: S104 - nothing listens
        ((None, "::1", 1), "[::1]:1"),
        ((None, None, None), None),
    ],
)
def test_where_to_listen(given, found):
    assert listening_on(*given) == found


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: listening_on("127.0.0.1:0", None, 0), "exclude each other"),
        (lambda: files_of(Path("a"), None, tls=True), "go together"),
        (lambda: files_of(Path("a"), Path("b"), tls=False), "needs TLS: omit --plain"),
        (lambda: range_of("10.0.0.1/24"), "is not an IPv4 network such as"),
        (lambda: range_of("fd00::/64"), "is not an IPv4 network such as"),
        (lambda: range_of("10.0.0.0/30"), "is too small: at most /29"),
        (lambda: switches_of("apps/v7=true"), "'apps/v7' is not served"),
    ],
)
def test_settings_of_a_server_that_cannot_be_are_refused(call, why):
    with pytest.raises(click.UsageError) as error:
        call()
    assert why in error.value.message


def test_files_that_are_not_a_certificate_are_named():
    here = Path(__file__)
    with pytest.raises(ServingError, match="cannot be used for TLS"):
        tls.operators_certificate(here, here)


def test_flagz_shows_each_option_as_it_was_given():
    command = click.Command(
        "serve",
        params=[
            click.Option(["-d", "--data"]),
            click.Option(["--tls/--plain"], default=True),
            click.Option(["--service"], multiple=True),
            click.Option(["--kubeconfig"]),
        ],
    )
    with command.make_context("serve", ["-d", "/x", "--plain", "--service", "a", "--service", "b"]):
        assert apiserver._flags() == {
            "data": "/x",
            "tls": "false",
            "service": "[a,b]",
            "kubeconfig": "",
        }
    assert apiserver._flags() == {}
