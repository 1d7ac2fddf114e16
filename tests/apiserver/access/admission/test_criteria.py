"""What a webhook or policy matches, while definitions come and go in other threads."""

from dataclasses import replace

from dralab.api.kinds import Kinds
from dralab.apiserver.access.admission.matching import Criteria

RULE = {"operations": ["*"], "apiGroups": ["x.io"], "apiVersions": ["v2"], "resources": ["racks"]}


def test_what_is_found_by_older_kinds_is_not_kept_for_newer_ones(monkeypatch):
    kinds = Kinds.standard()
    model = kinds.find("apps", "v1", "deployments")
    first = replace(model, group="x.io", plural="racks", kind="Rack", hub="x.io/racks")
    kinds.add(first)
    criteria = Criteria(kinds, {}, [RULE])
    matched, second = criteria._matched, replace(first, version="v2")

    def slowly(*asked):
        found = matched(*asked)
        monkeypatch.setattr(criteria, "_matched", matched)
        kinds.add(second)  # in another thread, which is answered
        assert may_match() is True
        return found

    def may_match():
        return criteria.may_match(first, "", "CREATE", name="", namespace=None)

    monkeypatch.setattr(criteria, "_matched", slowly)
    assert may_match() is False
    assert may_match() is True, "by the other version, which is there now"
