"""What `dralab apiserver` says of an etcd that it cannot use."""

import pytest
from click.testing import CliRunner

from dralab.cli.main import main

pytest.importorskip("grpc")
pytest.importorskip("greenlet")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--etcd-prefix", "/x"], "--etcd-prefix needs --store etcd://HOST:PORT"),
        (["--store", "http://a"], "expected etcd://HOST:2379"),
        (["--store", "etcd://a?prefix=/x", "--etcd-prefix", "/y"], "prefix is given twice"),
        (["--store", "etcd://a", "--durability", "relaxed"], "--durability is for --data"),
        (["--store", "etcd://a", "--etcd-certfile", "c"], "needs both certfile and keyfile"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, said):
    result = CliRunner().invoke(main, ["apiserver", *arguments])
    assert result.exit_code == 2
    assert said in result.output
