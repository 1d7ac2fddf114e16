"""The scenario of the operators in `siteoperators`: four sites, of which one is deleted."""

from dralab.kernel.clock import SECOND
from dralab.testing.process import ProgramSpec
from dralab.testing.trial_scenario import (
    ClusterParts,
    HistoryInvariant,
    ScriptStep,
    TrialScenario,
)
from siteoperators import ports_are_unique

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sites.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Site", "plural": "sites", "singular": "site", "listKind": "SiteList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
REGISTRY = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "registry"}}
DIRECTORY = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "directory", "namespace": "default"},
}


def site(name):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Site", "metadata": metadata, "spec": {}}


def scenario(operator, **changes):
    target = {"apiVersion": "example.com/v1", "kind": "Site", "name": "a"}
    steps = [
        ScriptStep(verb="apply", after=SECOND, objects=[site("a")]),
        ScriptStep(verb="apply", after=5 * SECOND, objects=[site("b")]),
        ScriptStep(verb="apply", after=5 * SECOND, objects=[site("c")]),
        ScriptStep(verb="delete", after=5 * SECOND, target=target),
        ScriptStep(verb="apply", after=5 * SECOND, objects=[site("d")]),
    ]
    given = {
        "name": operator.__name__,
        "programs": [ProgramSpec(name="operator", build=operator, cached_lists=True)],
        "manifests": [DEFINITION, REGISTRY, DIRECTORY],
        "script": steps,
        "cluster": ClusterParts(controllers=["garbage-collector-controller"], scheduler=False),
        "checks": [HistoryInvariant(name="ports", check=ports_are_unique)],
        # Which site gets which port depends on the order in which they are seen.
        "ignore": ["example.com/sites:status.port"],
    }
    return TrialScenario(**{**given, **changes})
