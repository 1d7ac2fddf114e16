"""Which kernel parameters a pod may set; texts of kubelet 1.36."""

import pytest

from dralab.node.network.sysctls import refusal, sysctls_of


def pod(*names, **spec):
    sysctls = [{"name": name, "value": "1"} for name in names]
    return {"spec": {"securityContext": {"sysctls": sysctls}, **spec}}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (pod("net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced"), ""),
        (pod("net/ipv4/tcp_syncookies"), ""),
        (pod("kernel.msgmax"), 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
        (pod("vm/swappiness"), 'forbidden sysctl: "vm.swappiness" not allowlisted'),
        (
            pod("net.ipv4.tcp_syncookies", hostNetwork=True),
            'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled',
        ),
        (
            pod("kernel.shm_rmid_forced", hostIPC=True),
            'forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled',
        ),
        (pod("kernel.shm_rmid_forced", hostNetwork=True), ""),
        ({"spec": {}}, ""),
    ],
)
def test_only_parameters_of_a_pods_own_namespaces_are_set(found, why):
    assert refusal(found) == why


def test_slashes_keep_the_dots_of_a_name():
    assert sysctls_of(pod("net/ipv4/conf/eth0.1/forwarding", "net.ipv4.conf.a/b")) == {
        "net.ipv4.conf.eth0/1.forwarding": "1",
        "net.ipv4.conf.a/b": "1",
    }
