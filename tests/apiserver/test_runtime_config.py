"""Which API versions are served."""

import pytest

from dralab.apiserver.runtime_config import RuntimeConfigError, kinds_of, parse


def served(text, *, all_versions=True):
    kinds = kinds_of(parse(text), all_versions=all_versions)
    return {kind.api_version for kind in kinds}


@pytest.mark.parametrize(
    ("text", "beta", "stable"),
    [
        ("resource.k8s.io/v1beta1=false", False, True),
        ("api/beta=false", False, True),
        ("api/beta=false,resource.k8s.io/v1beta1=true", True, True),
        ("api/all=false,resource.k8s.io/v1=true", False, True),
        ("resource.k8s.io/v1=false", True, False),
    ],
)
def test_the_most_exact_switch_counts(text, beta, stable):
    found = served(text)
    assert ("resource.k8s.io/v1beta1" in found, "resource.k8s.io/v1" in found) == (beta, stable)
    assert "v1" in found, "the core API cannot be switched off"


def test_a_version_that_is_off_by_default_can_be_switched_on():
    assert "resource.k8s.io/v1beta1" not in served("apps/v1=true", all_versions=False)
    assert "resource.k8s.io/v1beta1" in served("resource.k8s.io/v1beta1", all_versions=False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("apps/v7=true", "'apps/v7' is not served: expected GROUP/VERSION"),
        ("apps/v1=maybe", "'apps/v1=maybe': expected apps/v1=true or apps/v1=false"),
        ("v1/pods=false", "'v1/pods=false': a server needs the core API"),
    ],
)
def test_a_switch_of_nothing_is_named(text, why):
    with pytest.raises(RuntimeConfigError, match=why.replace("(", r"\(")):
        parse(text)
