"""Kinds on which no part of a cluster acts: whoever creates one is told, and the docs name them."""

import json
import re
import urllib.request
from pathlib import Path

import pytest

from dralab.api.kinds import Kinds
from dralab.api.releases import versions
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import STORED_ONLY, ControlPlane

PAGE = Path(__file__).parents[2] / "docs/decisions/api-differences.md"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
POLICY = {"metadata": {"name": "p"}, "spec": {"podSelector": {}}}


def warning(cluster, path, body):
    """Return the warning of a create."""
    head = {"Content-Type": "application/json"}
    data = json.dumps(body).encode()
    request = urllib.request.Request(cluster.url + path, data, head)
    with urllib.request.urlopen(request) as answer:
        return answer.headers["Warning"]


@pytest.mark.parametrize("parts", [True, False])
def test_a_cluster_warns_of_kinds_on_which_no_part_of_it_acts(parts):
    components = [ControlPlane()] if parts else []
    with Cluster(Options(), components=components) as cluster:
        told = warning(cluster, POLICIES, POLICY)
        text = "networking.k8s.io/v1 NetworkPolicy: stored only, no part of this cluster acts on it"
        assert told == (f'299 - "{text}"' if parts else None)
        config_map = {"metadata": {"name": "c"}}
        assert warning(cluster, "/api/v1/namespaces/default/configmaps", config_map) is None


def test_the_page_of_differences_names_each_of_them():
    known = {
        kind.hub: kind.kind for release in versions() for kind in Kinds.standard(release=release)
    }
    section = PAGE.read_text().partition("## Stored only")[2].partition("## ")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", section))
    assert named == {known[hub] for hub in STORED_ONLY}
