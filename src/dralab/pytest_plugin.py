"""Fixtures for tests against a Kubernetes API; the cluster itself is in `cluster`.

One server per test session, an empty store per test: a cluster costs a test less than a
millisecond. Nothing is imported before the first test needs it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dralab.cluster import Cluster
    from dralab.runtime.local import LocalClient


@pytest.fixture(scope="session")
def dralab_server() -> "Iterator[Cluster]":
    """The session's server; tests ask for `cluster`."""
    from dralab.cluster import Cluster

    with Cluster() as running:
        yield running


@pytest.fixture
def cluster(dralab_server: "Cluster") -> "Cluster":
    """An empty cluster of the test's own, served over HTTP at `cluster.url`."""
    dralab_server.reset()
    return dralab_server


@pytest.fixture
def kubeconfig(cluster: "Cluster") -> Path:
    """A kubeconfig file of the test's cluster, for kubectl and for clients in any language."""
    return cluster.kubeconfig


@pytest.fixture
def client(cluster: "Cluster") -> "LocalClient":
    """A client of the test's cluster that needs no HTTP."""
    return cluster.client
