"""What a webhook is told of the options of a deletion: those that were given, and no others."""

import pytest

from dralab.apiserver.verbs.state.options import DeleteOptions

HEAD = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {}),
        ({"grace": 0}, {"gracePeriodSeconds": 0}),
        ({"uid": "u"}, {"preconditions": {"uid": "u"}}),
        ({"revision": "7"}, {"preconditions": {"resourceVersion": "7"}}),
        (
            {"uid": "u", "revision": "7"},
            {"preconditions": {"uid": "u", "resourceVersion": "7"}},
        ),
        ({"orphan_dependents": False}, {"orphanDependents": False}),
        ({"orphan_dependents": True}, {"orphanDependents": True}),
        ({"policy": "Orphan"}, {"propagationPolicy": "Orphan"}),
        ({"dry_run": True}, {"dryRun": ["All"]}),
    ],
)
def test_a_webhook_is_told_the_options_that_were_given(given, told):
    assert DeleteOptions(**given).as_reviewed() == HEAD | told
