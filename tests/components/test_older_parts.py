"""Older generations are one entry each: what a server serves decides which parts run."""

import pytest

from dralab.components import older_parts, profiles
from dralab.components.simulated import SimulatedCluster
from dralab.controllers import registry


@pytest.mark.parametrize(
    ("served", "older"),
    [
        (("v1",), ["k8srm"]),
        (("v1", "classic"), ["k8srm", "classic"]),
        (("evolution",), ["k8srm", "evolution"]),
        (("classic",), ["k8srm", "classic"]),
    ],
)
def test_the_kinds_of_a_server_say_which_parts_run_there(served, older):
    cluster = SimulatedCluster(profiles=served)
    found = older_parts.served(cluster.server.resources.kinds)
    assert [each.profile for each in found] == older
    asked = older_parts.profiles_of(cluster.client)
    assert asked == [*(["v1"] if "v1" in served else []), *older]


def test_where_kinds_are_unknown_only_todays_parts_run():
    assert older_parts.served(None) == []


def test_each_part_has_a_profile_and_an_account_for_its_controllers():
    assert {each.profile for each in older_parts.PARTS} == {*profiles.NAMES} - {"v1"}
    for parts in older_parts.PARTS:
        for name in parts.controllers:
            account = registry.account_of(name).rpartition(":")[2]
            assert account in parts.accounts
