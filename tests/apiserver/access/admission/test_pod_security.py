"""Namespaces ask for a level, and pods keep to it."""

import pytest

from apiserver.verbs.asking import Asked
from dralab.apiserver.access.admission.pod_security import (
    NamespaceSecurity,
    PodSecuritySettings,
    Standard,
    policy_of,
)
from dralab.apiserver.access.admission.selection import AdmissionFlagError, settings_of
from dralab.apiserver.verbs.assembly import built_in_admission

PREFIX = "pod-security.kubernetes.io/"
POD = {"containers": [{"name": "c", "image": "i"}]}


@pytest.fixture
def ask():
    return Asked()


def namespace(ask, **labels):
    labels = {PREFIX + name.replace("_", "-"): value for name, value in labels.items()}
    return ask("POST", "/api/v1/namespaces", {"metadata": {"name": "n", "labels": labels}})


SANDBOX = {"metadata": {"name": "sandbox"}, "handler": "runsc"}


def create(ask, spec=POD, url="/api/v1/namespaces/n/pods", **metadata):
    return ask.full("POST", url, {"metadata": {"name": "p", **metadata}, "spec": spec})


def warnings(answer):
    return [value.removeprefix("299 - ") for name, value in answer.headers if name == "Warning"]


def test_a_pod_beyond_the_level_is_refused(ask):
    namespace(ask, enforce="restricted")
    answer = create(ask)
    assert answer.status == 403
    text = answer.content.decode()
    assert (
        'pods \\"p\\" is forbidden: violates PodSecurity \\"restricted:latest\\": '
        "allowPrivilegeEscalation != false (container" in text
    )
    assert not warnings(answer)


def test_a_pod_may_be_warned_about(ask):
    namespace(ask, warn="baseline", warn_version="v1.30")
    answer = create(ask, {**POD, "hostNetwork": True})
    assert answer.status == 201
    assert warnings(answer) == [
        r'"would violate PodSecurity \"baseline:v1.30\": host namespaces (hostNetwork=true)"'
    ]


def test_a_template_is_warned_about_where_its_pods_will_fail(ask):
    namespace(ask, enforce="baseline")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**POD, "hostPID": True}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    url = "/apis/apps/v1/namespaces/n/deployments"
    answer = create(ask, spec, url)
    assert answer.status == 201
    assert "baseline:latest" in warnings(answer)[0]
    job = {"schedule": "@hourly", "jobTemplate": {"spec": {"template": template}}}
    template["spec"]["restartPolicy"] = "Never"
    answer = create(ask, job, "/apis/batch/v1/namespaces/n/cronjobs")
    assert (answer.status, len(warnings(answer))) == (201, 1)


def test_a_change_is_looked_at_where_it_can_matter(ask):
    namespace(ask)
    create(ask, {**POD, "hostPID": True})
    answer = ask.full(
        "PATCH",
        "/api/v1/namespaces/n",
        b'{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}',
        content_type="application/merge-patch+json",
    )
    assert answer.status == 200
    assert warnings(answer) == [
        r'"existing pods in namespace \"n\" violate the new PodSecurity enforce level '
        r'\"baseline:latest\""',
        '"p: host namespaces"',
    ]
    url = "/api/v1/namespaces/n/pods/p"
    image = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    assert ask.merge(url, {"metadata": {"labels": {"a": "b"}}})[0] == 200
    assert (
        ask.full(
            "PATCH",
            url,
            str(image).replace("'", '"').encode(),
            content_type="application/strategic-merge-patch+json",
        ).status
        == 200
    )
    debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}
    answer = ask.full(
        "PATCH",
        f"{url}/ephemeralcontainers",
        str(debug).replace("'", '"').encode(),
        content_type="application/strategic-merge-patch+json",
    )
    assert answer.status == 403


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"enforce": "strict"}, "must be one of privileged, baseline, restricted"),
        ({"warn_version": "1.30"}, 'must be \\"latest\\" or \\"v1.x\\"'),
    ],
)
def test_a_label_that_means_nothing_is_refused(ask, labels, why):
    status, answer = namespace(ask, **labels)
    assert (status, answer["reason"]) == (422, "Invalid")
    assert f"metadata.labels[{PREFIX}" in answer["message"]
    assert why.replace("\\", "") in answer["message"]


def test_who_enforces_is_warned_by_it():
    labels = {PREFIX + "enforce": "restricted", PREFIX + "enforce-version": "v1.30"}
    policy, errors = policy_of(labels, NamespaceSecurity())
    assert (policy.warn, policy.audit, errors) == (policy.enforce, policy.enforce, [])
    policy, _ = policy_of({**labels, PREFIX + "warn": "baseline"}, NamespaceSecurity())
    assert policy.warn == Standard("baseline")
    policy, errors = policy_of({PREFIX + "enforce": "x"}, NamespaceSecurity())
    assert (policy.enforce.level, len(errors)) == ("restricted", 1), "closed where it is unclear"


def test_some_are_exempt_and_others_have_a_level_unasked():
    settings = PodSecuritySettings(
        defaults=NamespaceSecurity(enforce=Standard("baseline")),
        namespaces=frozenset({"kube-system"}),
        runtime_classes=frozenset({"sandbox"}),
    )
    ask = Asked(admission=built_in_admission(service_accounts=False, pod_security=settings))
    bad = {**POD, "hostIPC": True}
    assert create(ask, bad, "/api/v1/namespaces/default/pods").status == 403
    assert create(ask, bad, "/api/v1/namespaces/kube-system/pods").status == 201
    ask.full("POST", "/apis/node.k8s.io/v1/runtimeclasses", SANDBOX)
    sandboxed = {**bad, "runtimeClassName": "sandbox"}
    assert create(ask, sandboxed, "/api/v1/namespaces/default/pods").status == 201
    named = PodSecuritySettings(
        defaults=NamespaceSecurity(enforce=Standard("baseline")), usernames=frozenset({"admin"})
    )
    ask = Asked(admission=built_in_admission(service_accounts=False, pod_security=named))
    assert create(ask, bad, "/api/v1/namespaces/default/pods").status == 201


CONFIGURATION = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}
    exemptions: {usernames: [jane], namespaces: [kube-system], runtimeClasses: []}
"""


def test_a_file_configures_levels_and_exemptions(tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(CONFIGURATION)
    found = settings_of(configuration=file).pod_security
    assert found.defaults.enforce == Standard("baseline", "v1.30")
    assert found.defaults.warn == Standard("restricted")
    assert (found.usernames, found.namespaces) == ({"jane"}, {"kube-system"})
    for wrong, why in (
        (CONFIGURATION.replace("baseline", "strict"), "defaults.enforce: must be one of"),
        (CONFIGURATION.replace("v1.30", "1.30"), 'enforce-version: must be "latest" or "v1.x"'),
        (
            CONFIGURATION.replace("name: PodSecurity", "name: Other"),
            "does not support configuration",
        ),
        ("plugins: 3", "plugins: expected a list"),
        ("[", "admission.yaml:"),
    ):
        file.write_text(wrong)
        with pytest.raises(AdmissionFlagError) as caught:
            settings_of(configuration=file)
        assert why in str(caught.value)


def test_plugins_are_chosen_by_name():
    plugins = built_in_admission()
    left = settings_of(["ServiceAccount"], ["PodSecurity", "DefaultStorageClass"]).chosen(plugins)
    assert {each.name for each in plugins} - {each.name for each in left} == {
        "PodSecurity",
        "DefaultStorageClass",
    }
    for enabled, disabled, why in (
        (["Podsecurity"], [], "unknown plugin 'Podsecurity'"),
        ([], ["x"], "unknown plugin 'x'"),
        (["AlwaysPullImages"], [], "AlwaysPullImages is not available here"),
        (["Priority"], ["Priority"], "Priority is in --disable-admission-plugins as well"),
    ):
        with pytest.raises(AdmissionFlagError, match=why):
            settings_of(enabled, disabled)
