"""The order of the versions of a group that several definitions share."""

from dralab.api.kinds import Kinds, kind_of


def test_a_version_that_comes_later_may_be_preferred():
    kinds = Kinds()
    for version in ("v1", "v1beta1", "v2"):
        entry = {"group": "example.com", "version": version, "kind": "A", "plural": "as"}
        kinds.add(kind_of({**entry, "namespaced": True}, custom={}))
    assert kinds.versions("example.com") == ["v2", "v1", "v1beta1"]
