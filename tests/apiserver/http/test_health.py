"""Health: three pages, a path for each check, and the counts of both."""

import pytest

from apiserver.verbs.asking import Asked

# What Kubernetes' end-to-end suite requires of each page.
REQUIRED = (
    "ping", "log", "etcd", "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers", "poststarthook/crd-informer-synced",
    "poststarthook/start-apiextensions-informers", "poststarthook/start-apiextensions-controllers",
    "poststarthook/bootstrap-controller", "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/kube-apiserver-autoregistration", "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
)  # fmt: skip


@pytest.fixture
def ask():
    return Asked()


def text(ask, url):
    return ask.full("GET", url).content.decode()


@pytest.mark.parametrize("page", ["healthz", "livez", "readyz"])
def test_a_page_lists_its_checks(ask, page):
    lines = text(ask, f"/{page}?verbose").splitlines()
    assert lines[-1] == f"{page} check passed"
    assert {f"[+]{check} ok" for check in REQUIRED} <= set(lines)
    assert ("[+]informer-sync ok" in lines) is (page == "readyz")
    paths = ask("GET", "/")[1]["paths"]
    for line in lines[:-1]:
        path = f"/{page}/{line[3:-3]}"
        assert path in paths
        assert text(ask, path) == "ok"


def test_the_results_are_counted(ask):
    text(ask, "/livez")
    text(ask, "/livez/ping")
    lines = text(ask, "/metrics/slis").splitlines()
    assert 'kubernetes_healthcheck{name="etcd",type="readyz"} 1' in lines
    counted = 'kubernetes_healthchecks_total{name="%s",status="success",type="livez"} %s'
    assert counted % ("ping", 2) in lines
    assert counted % ("etcd", 1) in lines
    assert not [line for line in lines if "_total" in line and 'type="readyz"' in line]


def test_a_server_that_is_cut_off_is_alive_and_not_ready(ask, monkeypatch):
    monkeypatch.setattr(type(ask.store), "connected", False)
    assert ask.full("GET", "/livez").status == 200
    assert "[-]etcd failed: reason withheld" in text(ask, "/readyz")
    assert ask.full("GET", "/readyz/etcd").status == 500
    lines = text(ask, "/metrics/slis").splitlines()
    assert 'kubernetes_healthcheck{name="etcd",type="readyz"} 0' in lines
    counted = 'kubernetes_healthchecks_total{name="etcd",status="error",type="readyz"} 2'
    assert counted in lines
