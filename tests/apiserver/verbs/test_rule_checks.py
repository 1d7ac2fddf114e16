"""Rules when their definition is written: types, costs, and what may stay as it was."""

import pytest

from dralab.apiserver.verbs.kinds.rule_checks import PER_DEFINITION, _TotalCost, rule_errors
from dralab.cel.schema_types import escape, type_of_schema, value_of

ROOT = "spec.validation.openAPIV3Schema"
ADVICE = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where"


def version(schema, name="v1"):
    return {"name": name, "schema": {"openAPIV3Schema": schema}}


def obj(*rules, **properties):
    found = {"type": "object", "properties": properties}
    return found | ({"x-kubernetes-validations": list(rules)} if rules else {})


def texts(*rules, items=None, length=None, type="array"):
    """Return a schema with a list of strings, and the largest numbers of items and characters."""
    item = {"type": "string"} | ({} if length is None else {"maxLength": length})
    found = {"type": type, "items": item, "x-kubernetes-validations": list(rules)}
    return found | ({} if items is None else {"maxItems": items})


def told(*schemas, before=()):
    versions = [version(schema, f"v{number}") for number, schema in enumerate(schemas, 1)]
    return [str(error) for error in rule_errors(versions, [version(one) for one in before])]


GPU = {"rule": "self.all(x, x.contains('gpu'))"}


# Measured with the validation of k8s.io/apiextensions-apiserver 0.36.3: the largest number of items
# that is accepted for a number of characters.
@pytest.mark.parametrize(("length", "most"), [(16, 909_090), (63, 333_333), (1024, 24_154)])
def test_the_largest_list_is_that_of_a_real_server(length, most):
    assert told(obj(tags=texts(GPU, items=most, length=length))) == []
    (one,) = told(obj(tags=texts(GPU, items=most + 1, length=length)))
    assert one.startswith(f"{ROOT}.properties[tags].x-kubernetes-validations[0].rule: Forbidden")


# A kube-apiserver 1.36.2 accepts the first two: what is read of a list that was put together has the
# size of `self`. They are Istio's, as is what they are about.
@pytest.mark.parametrize(
    ("rule", "errors"),
    [
        ("!(has(self.tags) ? self.tags : []).exists(k, k.contains('/'))", 0),
        ("(['a'] + self.tags).all(k, k.contains('/'))", 0),
        ("self.tags.all(k, k.contains('/'))", 0),
        ("self.tags.all(k, self.tags.all(m, k.contains(m)))", 1),
    ],
)
def test_the_size_of_what_is_in_a_list_that_was_put_together(rule, errors):
    tags = {"type": "array", "maxItems": 256, "items": {"type": "string", "maxLength": 64}}
    assert len(told(obj({"rule": rule}, tags=tags))) == errors


def test_an_unbounded_rule_is_told_three_times():
    one, two, three = told(obj(tags=texts(GPU)))
    rule = f"{ROOT}.properties[tags].x-kubernetes-validations[0].rule: Forbidden:"
    assert one.startswith(
        f"{rule} estimated rule cost exceeds budget by factor of more than 100x {ADVICE}"
    )
    assert two == (
        f"{rule} contributed to estimated rule cost total exceeding cost limit for entire "
        "OpenAPIv3 schema"
    )
    assert three.startswith(
        f"{ROOT}: Forbidden: x-kubernetes-validations estimated rule cost total for entire "
        "OpenAPIv3 schema exceeds budget by factor of more than 100x"
    )


def test_a_message_may_not_be_unbounded_either():
    rule = {"rule": "self.n > 1", "messageExpression": "'n is ' + string(self.n)"}
    found = told(obj(rule, n={"type": "integer"}))
    assert ".messageExpression: Forbidden: estimated messageExpression cost" in found[0]
    good = {**rule, "messageExpression": "'n is %d'.format([self.n])"}
    assert told(obj(good, n={"type": "integer"})) == []


def test_a_slight_excess_is_told_exactly():
    (one,) = told(obj(tags=texts(GPU, items=1_000_000, length=16)))
    assert "exceeds budget by factor of 1.100000x" in one


def test_rules_within_lists_count_once_for_each_item():
    rule = {"rule": "self.size() < 10"}
    inner = {"type": "string", "x-kubernetes-validations": [rule]}
    bounded = {"type": "array", "items": inner, "maxItems": 100}
    assert told(obj(l=bounded)) == []
    huge = {"type": "array", "items": {"type": "array", "items": inner, "maxItems": 3000}}
    huge["maxItems"] = 3000
    (one,) = told(obj(l=huge))
    assert ".items.items.x-kubernetes-validations[0].rule: Forbidden" in one


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("self.nope > 1", "undefined field 'nope'"),
        ("self.n + 'a' == 'a'", "found no matching overload for '_+_'"),
        ("self.n", "must evaluate to"),
        ("self.free.x == 1", "undefined field 'x'"),
        ("oldSelf.nope == 1", "undefined field 'nope'"),
    ],
)
def test_types_are_checked(rule, says):
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    (one,) = told(obj({"rule": rule}, n={"type": "integer"}, free=free))
    assert one.startswith(f"{ROOT}.x-kubernetes-validations[0].rule: Invalid value")
    assert says in one


@pytest.mark.parametrize(
    "rule",
    [
        "self.when < timestamp('2030-01-01T00:00:00Z')",
        "self.wait <= duration('1h')",
        "self.share > 0.5",
        "self.a__dash__b == 'x'",
        "self.__namespace__ == 'x'",
        "self.either == 3 || self.either == '50%'",
        "self.by.all(k, self.by[k] > 0)",
        "self.metadata.name.startsWith('a')",
        "size(self.data) > 2",
    ],
)
def test_what_a_rule_reads_has_the_type_of_its_schema(rule):
    from dralab.apiserver.verbs.kinds.custom_expressions import broken_rules

    schema = obj(
        {"rule": rule},
        **{
            "when": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "share": {"type": "number"},
            "a-b": {"type": "string", "maxLength": 10},
            "namespace": {"type": "string", "maxLength": 10},
            "either": {"x-kubernetes-int-or-string": True},
            "by": {"type": "object", "additionalProperties": {"type": "integer"}},
            "data": {"type": "string", "format": "byte"},
        },
    )
    schema["properties"]["by"]["maxProperties"] = 10
    assert told(schema) == []
    good = {
        "when": "2026-01-01T00:00:00Z", "wait": "30m", "share": 1, "a-b": "x", "namespace": "x",
        "either": "50%", "by": {"k": 1}, "metadata": {"name": "abc"}, "data": "QUJD",
    }  # fmt: skip
    assert list(broken_rules(schema, good, None, "")) == []
    bad = {
        **good, "when": "2031-01-01T00:00:00Z", "wait": "2h", "share": 0, "a-b": "y",
        "namespace": "y", "either": 4, "by": {"k": 0}, "metadata": {"name": "b"}, "data": "QQ==",
    }  # fmt: skip
    assert len(list(broken_rules(schema, bad, None, ""))) == 1


def test_items_of_lists_with_keys_are_compared_with_those_before():
    from dralab.apiserver.verbs.kinds.custom_expressions import broken_rules

    item = obj({"rule": "self.v >= oldSelf.v"}, k={"type": "string"}, v={"type": "integer"})
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema = obj(l={"type": "array", "items": item, **keys})
    old = {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}
    new = {"l": [{"k": "b", "v": 4}, {"k": "a", "v": 2}, {"k": "c", "v": 0}]}
    (error,) = broken_rules(schema, new, old, "")
    assert error.field == "l[0]"


def test_schemas_that_differ_are_named_by_their_version():
    bad = obj({"rule": "self.nope"})
    (one,) = told(obj(), bad)
    assert one.startswith("spec.versions[1].schema.openAPIV3Schema.x-kubernetes-validations[0]")
    assert len(told(bad, bad)) == 1


def test_what_was_there_before_may_stay():
    bad = obj({"rule": "self.nope"})
    assert told(bad, before=[bad]) == []
    assert len(told({**bad, "description": "new"}, before=[bad])) == 1


def test_names_that_no_rule_can_write():
    assert escape("a.b/c__d") == "a__dot__b__slash__c__underscores__d"
    assert escape("é") is None
    hidden = type_of_schema(obj(**{"1": {"type": "string"}}))
    assert hidden.fields == {}
    assert value_of({}, {"1": 2}) == {"1": 2}


def test_only_what_costs_a_hundredth_of_the_limit_is_named_among_the_dearest():
    least = PER_DEFINITION // 100
    total = _TotalCost()
    for cost, path in ((5, "dear"), (1, "cheap"), (3, "fair")):
        total.add(cost * least, path)
    total.add(least - 1, "free")
    assert total.cost == 10 * least - 1
    assert total.dearest == [(5 * least, "dear"), (3 * least, "fair"), (least, "cheap")]
