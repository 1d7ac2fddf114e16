"""The Pod Security Standards, in the words of a real server."""

import pytest

from dralab.objects.pod_security import LATEST, LEVELS, violations

SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def told(level, spec, version=LATEST, **metadata):
    return [str(each) for each in violations(level, version, metadata, spec)]


def one(security=None, *more, **parts):
    """A pod with a container `c`."""
    return {"containers": [{"name": "c", "securityContext": security or {}, **parts}, *more]}


def pod(**security):
    """A pod with a security context, and a container `c` without one."""
    return one() | {"securityContext": security}


def volume(**kind):
    return one() | {"volumes": [{"name": "v", **kind}]}


def test_what_a_plain_pod_lacks_is_listed_in_order():
    assert told("restricted", {"containers": [{"name": "a"}, {"name": "b"}]}) == [
        "allowPrivilegeEscalation != false "
        '(containers "a", "b" must set securityContext.allowPrivilegeEscalation=false)',
        "unrestricted capabilities "
        '(containers "a", "b" must set securityContext.capabilities.drop=["ALL"])',
        'runAsNonRoot != true (pod or containers "a", "b" must set '
        "securityContext.runAsNonRoot=true)",
        'seccompProfile (pod or containers "a", "b" must set securityContext.seccompProfile.type '
        'to "RuntimeDefault" or "Localhost")',
    ]
    assert told("baseline", one()) == []
    assert told("restricted", one(SAFE)) == []


def test_everything_goes_with_privilege():
    assert told("privileged", one({"privileged": True}) | {"hostNetwork": True}) == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"hostNetwork": True, "hostPID": True},
            "host namespaces (hostNetwork=true, hostPID=true)",
        ),
        (
            one({"privileged": True}),
            'privileged (container "c" must not set securityContext.privileged=true)',
        ),
        (
            one({"capabilities": {"add": ["SYS_TIME", "NET_ADMIN", "CHOWN"]}}),
            'non-default capabilities (container "c" must not include "NET_ADMIN", "SYS_TIME" in '
            "securityContext.capabilities.add)",
        ),
        (volume(hostPath={"path": "/"}), 'hostPath volumes (volume "v")'),
        (one(ports=[{"hostPort": 80}]), 'hostPort (container "c" uses hostPort 80)'),
        (
            one(ports=[{"hostPort": 80}, {"hostPort": 443}]),
            'hostPort (container "c" uses hostPorts 443, 80)',
        ),
        (
            one(livenessProbe={"httpGet": {"host": "evil"}}),
            'probe or lifecycle host (container "c" uses probe or lifecycle host "evil")',
        ),
        (
            one(lifecycle={"preStop": {"tcpSocket": {"host": "evil"}}}),
            'probe or lifecycle host (container "c" uses probe or lifecycle host "evil")',
        ),
        (
            one({"procMount": "Unmasked"}),
            'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
        ),
        (
            pod(seLinuxOptions={"type": "spc_t", "user": "u"}),
            'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user '
            "may not be set)",
        ),
        (
            one({"seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (container "c" must not set securityContext.seccompProfile.type to '
            '"Unconfined")',
        ),
        (pod(sysctls=[{"name": "kernel.msgmax"}]), "forbidden sysctls (kernel.msgmax)"),
        (
            pod(windowsOptions={"hostProcess": True}),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            one({"appArmorProfile": {"type": "Unconfined"}}),
            'forbidden AppArmor profile (container "c" must not set AppArmor profile type to '
            '"Unconfined")',
        ),
    ],
)
def test_baseline_forbids_what_is_known_to_escape(spec, why):
    assert told("baseline", spec) == [why]


@pytest.mark.parametrize(
    ("security", "why"),
    [
        (
            {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
            'unrestricted capabilities (container "c" must not include "CHOWN" in '
            "securityContext.capabilities.add)",
        ),
        (
            {"runAsNonRoot": False},
            'runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)',
        ),
        ({"runAsUser": 0}, 'runAsUser=0 (container "c" must not set runAsUser=0)'),
        (
            {"seccompProfile": {"type": "Unconfined"}},
            'seccompProfile (container "c" must not set securityContext.seccompProfile.type to '
            '"Unconfined")',
        ),
    ],
)
def test_restricted_is_told_of_each_container(security, why):
    assert told("restricted", one(SAFE | security)) == [why]


def test_what_a_pod_sets_is_for_its_containers():
    safe = {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}
    container = {part: SAFE[part] for part in ("allowPrivilegeEscalation", "capabilities")}
    assert told("restricted", one(container) | {"securityContext": safe}) == []


def test_volumes_are_of_the_kinds_that_restricted_lists():
    spec = one(SAFE) | {"volumes": [{"name": "a", "nfs": {}}, {"name": "b", "hostPath": {}}]}
    assert told("restricted", spec) == [
        'restricted volume types (volumes "a", "b" use restricted volume types "hostPath", "nfs")'
    ]
    assert told("restricted", one(SAFE) | {"volumes": [{"name": "a", "emptyDir": {}}]}) == []


def test_all_kinds_of_containers_count():
    spec = {
        "initContainers": [{"name": "i", "securityContext": {"privileged": True}}],
        "containers": [{"name": "c"}],
        "ephemeralContainers": [{"name": "e", "securityContext": {"privileged": True}}],
    }
    assert told("baseline", spec) == [
        'privileged (containers "i", "e" must not set securityContext.privileged=true)'
    ]


def test_annotations_name_profiles_as_well():
    key = "container.apparmor.security.beta.kubernetes.io/c"
    for value, bad in (("unconfined", True), ("runtime/default", False), ("localhost/x", False)):
        found = told("baseline", one(), annotations={key: value})
        why = f'annotation must not set AppArmor profile type to "{key}="{value}""'
        assert found == [f"forbidden AppArmor profile ({why})"] * bad


def test_a_pod_with_users_of_its_own_may_do_more():
    spec = {**one({"procMount": "Unmasked"}), "hostUsers": False}
    assert told("baseline", spec) == []
    assert "procMount" in told("restricted", spec)[2]
    assert not any("runAs" in each for each in told("restricted", spec))


@pytest.mark.parametrize(
    ("spec", "before", "since"),
    [
        (one(livenessProbe={"httpGet": {"host": "x"}}), None, (1, 34)),
        (pod(sysctls=[{"name": "net.ipv4.tcp_rmem"}]), (1, 32), None),
        (pod(seLinuxOptions={"type": "container_engine_t"}), (1, 31), None),
    ],
)
def test_a_version_keeps_its_own_rules(spec, before, since):
    if since is not None:
        assert told("baseline", spec, (1, since[1] - 1)) == []
        assert told("baseline", spec, since)
    if before is not None:
        assert told("baseline", spec, (1, before[1] - 1))
        assert told("baseline", spec, before) == []


def test_windows_is_spared_what_linux_has():
    spec = one({"runAsNonRoot": True}) | {"os": {"name": "windows"}}
    assert told("restricted", spec) == []
    assert len(told("restricted", spec, (1, 24))) == 3


def test_each_level_allows_what_a_stricter_one_does():
    specs = [one(SAFE), one(), one({"privileged": True})]
    counts = [[len(told(level, spec)) for level in LEVELS] for spec in specs]
    assert counts == [sorted(each) for each in counts]
    assert [sum(each) for each in counts] == [0, 4, 6]
