"""Fixtures for tests against a Kubernetes API; the cluster itself is in `cluster`.

`settings` reads the options `--dralab-…` and the marker `dralab`, `servers` keeps the servers of a
run, `driver_checks` has the conformance checks of drivers as tests, and `plain_imports` makes the
imports fast. One server serves all tests that want it alike, with an empty store for each: an API
costs a test less than a millisecond, a cluster that runs some hundredths of a second. Nothing is
imported before the first test needs it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dralab.pytest_plugin.driver_checks import driver_conformance
from dralab.pytest_plugin.plain_imports import import_plainly
from dralab.pytest_plugin.settings import MARKER, add_options, settings_of

if TYPE_CHECKING:
    from dralab.cluster import Cluster
    from dralab.pytest_plugin.servers import Servers
    from dralab.runtime.cluster_clock import ClusterClock
    from dralab.runtime.local import LocalClient

__all__ = [
    "client",
    "clock",
    "cluster",
    "dralab_servers",
    "dralab_version",
    "driver_conformance",
    "kubeconfig",
    "running_cluster",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fixtures; the first hook of all, before any conftest is imported."""
    import_plainly()
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def dralab_servers() -> "Iterator[Servers]":
    """The servers of the session; tests ask for `cluster` or `running_cluster`."""
    from dralab.pytest_plugin.servers import Servers

    with Servers() as servers:
        yield servers


@pytest.fixture
def dralab_version(request: pytest.FixtureRequest) -> str:
    """The Kubernetes release of the test's cluster; parametrize it to test several."""
    return settings_of(request).version


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, dralab_servers: "Servers", dralab_version: str
) -> "Iterator[Cluster]":
    """An empty cluster of the test's own, served over HTTP at `cluster.url`: the API alone."""
    wanted = replace(settings_of(request), version=dralab_version)
    with dralab_servers.serving(wanted.without_components()) as found:
        yield found


@pytest.fixture
def running_cluster(
    request: pytest.FixtureRequest, dralab_servers: "Servers", dralab_version: str
) -> "Iterator[Cluster]":
    """A cluster of the test's own with scheduler, controllers and nodes, which are ready."""
    with dralab_servers.serving(replace(settings_of(request), version=dralab_version)) as found:
        yield found


@pytest.fixture
def clock(running_cluster: "Cluster") -> "ClusterClock":
    """The time of the running cluster: `clock.advance("1h")` lets an hour pass at once."""
    from dralab.pytest_plugin.servers import clock_of

    return clock_of(running_cluster)


@pytest.fixture
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """A kubeconfig file of the test's cluster, for kubectl and for clients in any language.

    Of the running one if the test asks for that (or for its clock), else of the API alone.
    """
    return _cluster_of(request).kubeconfig


@pytest.fixture
def client(request: pytest.FixtureRequest) -> "LocalClient":
    """A client of the same cluster that needs no HTTP."""
    return _cluster_of(request).client


def _cluster_of(request: pytest.FixtureRequest) -> "Cluster":
    runs = "running_cluster" in request.fixturenames
    found: Cluster = request.getfixturevalue("running_cluster" if runs else "cluster")
    return found
