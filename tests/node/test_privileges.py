"""As whom containers run, and the files in /etc of their pods."""

import pytest

from dralab.node.etc_files import HEADER, HOSTS, RESOLV, etc_files, hostname_of
from dralab.node.privileges import LEFT, file_owner, privileges_of


def pod(*containers, **spec):
    metadata = {"name": "web-0", "namespace": "ns"}
    return {"metadata": metadata, "spec": {"containers": list(containers) or [{}], **spec}}


def test_a_container_overrides_its_pod():
    whole = {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]}
    own = {"securityContext": {"runAsUser": 9, "allowPrivilegeEscalation": False}}
    found = privileges_of(pod(own, securityContext=whole), own)
    assert (found.user, found.group, found.groups, found.escalates) == (9, 2, (4, 3), False)
    assert privileges_of(pod(), {}).user is None
    # A group that is not named is root's: the user is not known in an image.
    assert privileges_of(pod(own), own).group == 0


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ({}, set(LEFT)),
        ({"drop": ["ALL"]}, set()),
        ({"drop": ["ALL"], "add": ["CAP_SYS_ADMIN"]}, {"SYS_ADMIN"}),
        ({"drop": ["KILL"], "add": ["SYS_TIME", "CHOWN"]}, {*LEFT, "SYS_TIME"} - {"KILL"}),
    ],
)
def test_capabilities_are_dropped_first_and_added_then(wanted, left):
    container = {"securityContext": {"capabilities": wanted}}
    assert set(privileges_of(pod(), container).capabilities) == left


def test_files_belong_to_the_user_that_all_containers_share():
    one, other = ({"securityContext": {"runAsUser": user}} for user in (1, 2))
    assert file_owner(pod(one, one)) == 1
    assert file_owner(pod(one, other)) is None
    assert file_owner(pod(one, {})) is None


def test_the_hosts_file_has_the_pod_and_its_aliases():
    aliases = [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]
    found = etc_files(pod(hostAliases=aliases, subdomain="sub"), "10.0.0.1")
    assert found[HOSTS] == (
        HEADER + "10.0.0.1\tweb-0.sub.ns.svc.cluster.local\tweb-0\n"
        "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
    )
    assert etc_files(pod(hostNetwork=True), "10.0.0.1") == {}
    assert RESOLV not in found


def test_a_node_with_a_network_is_the_host_of_pods_on_it():
    assert hostname_of(pod(hostNetwork=True)) == ""
    assert hostname_of(pod(hostNetwork=True), "n1") == "n1"
    assert hostname_of(pod(hostNetwork=True), f"{'n' * 62}.x") == "n" * 62
    assert hostname_of(pod(), "n1") == "web-0"


def test_a_pod_can_name_its_own_servers():
    config = {
        "nameservers": ["1.1.1.1"],
        "searches": ["example.org"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
    }
    found = etc_files(pod(dnsPolicy="None", dnsConfig=config), "10.0.0.1")
    assert found[RESOLV] == "search example.org\nnameserver 1.1.1.1\noptions ndots:2 edns0\n"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "web-0"),
        ({"hostname": "db"}, "db"),
        ({"hostNetwork": True}, ""),
        ({"hostname": "x" * 62 + "-y"}, "x" * 62),
    ],
)
def test_a_host_is_named_after_its_pod(spec, name):
    assert hostname_of(pod(**spec)) == name
