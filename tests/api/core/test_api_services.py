"""What an APIService must be."""

import pytest

from dralab.api.core.api_services import ApiServiceStrategy

STRATEGY = ApiServiceStrategy()
SERVICE = {"namespace": "default", "name": "agg"}


def api_service(name="v1.example.com", **spec):
    found = {"group": "example.com", "version": "v1"}
    found |= {"groupPriorityMinimum": 1000, "versionPriority": 15, **spec}
    value = {"metadata": {"name": name}, "spec": found}
    STRATEGY.default(value)
    return value


def test_good_ones():
    assert STRATEGY.validate(api_service()) == []
    assert STRATEGY.validate(api_service("v1.", group="")) == []
    remote = api_service(service=dict(SERVICE), insecureSkipTLSVerify=True)
    assert remote["spec"]["service"]["port"] == 443
    assert STRATEGY.validate(remote) == []


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        ("v2.example.com", {}, "metadata.name"),
        ("v2.", {"group": "", "version": "v2"}, "spec.group"),
        ("v1.A", {"group": "A"}, "spec.group"),
        ("1.example.com", {"version": "1"}, "spec.version"),
        ("v1.example.com", {"groupPriorityMinimum": 20001}, "spec.groupPriorityMinimum"),
        ("v1.example.com", {"versionPriority": 0}, "spec.versionPriority"),
        ("v1.example.com", {"caBundle": "QQ=="}, "spec.caBundle"),
        ("v1.example.com", {"insecureSkipTLSVerify": True}, "spec.insecureSkipTLSVerify"),
        ("v1.example.com", {"service": {"name": "a"}}, "spec.service.namespace"),
        ("v1.example.com", {"service": {**SERVICE, "port": 70000}}, "spec.service.port"),
        (
            "v1.example.com",
            {"service": SERVICE, "caBundle": "QQ==", "insecureSkipTLSVerify": True},
            "spec.insecureSkipTLSVerify",
        ),
    ],
)
def test_wrong_ones(name, spec, field):
    (error,) = STRATEGY.validate(api_service(name, **spec))
    assert error.field == field
