"""Claims, templates, classes, taint rules, pool questions: one row for each rule."""

import copy

import pytest

from builders import ask, cel, claim, device_class, first_of, obj, request
from dralab.api.resource.features import ALL, DEFAULT_1_36
from dralab.api.resource.rules import Compiled, default, validate_create, validate_update

NOW = "2026-01-01T00:00:00Z"
REQUEST = "spec.devices.requests[0]"
REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)
CONFIG = {"opaque": {"driver": "d", "parameters": {"a": 1}}}
NO_ATTRIBUTE = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are '
    "set"
)


def compiler(expression, features, *, derived):
    """Stands in for CEL: `!` does not compile, digits are costs."""
    if "!" in expression:
        return Compiled(error="compilation failed: no")
    return Compiled(max_cost=int(expression) if expression.isdigit() else 1)


def errors(made, features=ALL):
    return [str(item) for item in validate_create(default(made, now=NOW), features, compiler)]


def template(**metadata):
    inner = claim("c", request("r"))["spec"]
    return obj("ResourceClaimTemplate", "t", spec={"metadata": metadata, "spec": inner})


def derived(*attributes, **more):
    made = [{"name": name, "expression": text} for name, text in attributes]
    return claim("c", request("r", derivedAttributes=made), **more)


GOOD = {
    "nothing asked": claim("c"),
    "one device": claim("c", request("r")),
    "alternatives": claim("c", first_of("r", a=ask(), b=ask("gpu", count="All"))),
    "a reference to an alternative": claim(
        "c", first_of("r", a=ask()), constraints=[{"requests": ["r/a"], "matchAttribute": "d/m"}]
    ),
    "a toleration without effect": claim("c", request("r", tolerations=[{"operator": "Exists"}])),
    "a toleration of effect None": claim(
        "c", request("r", tolerations=[{"key": "k", "effect": "None"}])
    ),
    "an opaque configuration": claim("c", request("r"), config=[CONFIG]),
    "a class": device_class("gpu", "true", config=[CONFIG], extendedResourceName="example.com/gpu"),
    "a template": template(labels={"a": "b"}, annotations={"c.d/e": "anything at all"}),
    "a derived attribute": derived(("d/m", "1"), match="d/m"),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_good_is_accepted(name):
    assert errors(GOOD[name]) == []


BAD = {
    "neither kind of request": (
        claim("c", {"name": "r"}),
        [f"{REQUEST}: Required value: exactly one of `exactly` or `firstAvailable` is required"],
    ),
    "both kinds of request": (
        claim("c", {**request("r"), **first_of("r", a=ask())}),
        [
            f"{REQUEST}: Invalid value: null: exactly one of `exactly` or `firstAvailable` is "
            "required, but multiple fields are set"
        ],
    ),
    "33 requests": (
        claim("c", *(request("R") for _ in range(33))),
        ["spec.devices.requests: Too many: 33: must have at most 32 items"],
    ),
    "nine alternatives": (
        claim("c", first_of("r", **{f"a{i}": ask() for i in range(9)})),
        [f"{REQUEST}.firstAvailable: Too many: 9: must have at most 8 items"],
    ),
    "a request twice": (
        claim("c", request("r"), request("r")),
        ['spec.devices.requests[1]: Duplicate value: "r"'],
    ),
    "an alternative twice": (
        claim("c", {"name": "r", "firstAvailable": [{"name": "a"} | ask()] * 2}),
        [f'{REQUEST}.firstAvailable[1]: Duplicate value: "a"'],
    ),
    "no class": (
        claim("c", request("r", "")),
        [f"{REQUEST}.exactly.deviceClassName: Required value"],
    ),
    "no devices": (
        claim("c", request("r", count=-1)),
        [f"{REQUEST}.exactly.count: Invalid value: -1: must be greater than zero"],
    ),
    "a count of all": (
        claim("c", request("r", allocationMode="All")),
        [
            f"{REQUEST}.exactly.count: Invalid value: 1: "
            "must not be specified when allocationMode is 'All'"
        ],
    ),
    "an unknown mode": (
        claim("c", request("r", allocationMode="Some")),
        [
            f'{REQUEST}.exactly.allocationMode: Unsupported value: "Some": '
            'supported values: "All", "ExactCount"'
        ],
    ),
    "33 selectors": (
        claim("c", request("r", "gpu", *(["!"] * 33))),
        [f"{REQUEST}.exactly.selectors: Too many: 33: must have at most 32 items"],
    ),
    "a selector of no kind": (
        claim("c", request("r", selectors=[{}])),
        [f"{REQUEST}.exactly.selectors[0].cel: Required value"],
    ),
    "a selector that does not compile": (
        claim("c", first_of("r", a=ask("gpu", "ok", "!"))),
        [
            f'{REQUEST}.firstAvailable[0].selectors[1].cel.expression: Invalid value: "!": '
            "compilation failed: no"
        ],
    ),
    "a selector that costs too much": (
        claim("c", request("r", "gpu", "1000001")),
        [
            f"{REQUEST}.exactly.selectors[0].cel.expression: Forbidden: "
            "too complex, exceeds cost limit"
        ],
    ),
    "a long selector": (
        claim("c", request("r", "gpu", "!" * (10 * 1024 + 1))),
        [
            f"{REQUEST}.exactly.selectors[0].cel.expression: Too long: "
            "may not be more than 10240 bytes"
        ],
    ),
    "17 tolerations": (
        claim("c", request("r", tolerations=[{"key": "k"}] * 17)),
        [f"{REQUEST}.exactly.tolerations: Too many: 17: must have at most 16 items"],
    ),
    "a toleration with a value for Exists": (
        claim("c", request("r", tolerations=[{"operator": "Exists", "value": "v"}])),
        [
            f'{REQUEST}.exactly.tolerations[0].value: Invalid value: "v": '
            "must be empty for operator `Exists`"
        ],
    ),
    "an unknown operator and effect": (
        claim("c", request("r", tolerations=[{"operator": "Like", "effect": "Never"}])),
        [
            f'{REQUEST}.exactly.tolerations[0].operator: Unsupported value: "Like": '
            'supported values: "Equal", "Exists"',
            f'{REQUEST}.exactly.tolerations[0].effect: Unsupported value: "Never": '
            'supported values: "NoExecute", "NoSchedule", "None"',
        ],
    ),
    "33 constraints": (
        claim("c", constraints=[{}] * 33),
        ["spec.devices.constraints: Too many: 33: must have at most 32 items"],
    ),
    "a constraint on nothing": (
        claim("c", request("r"), constraints=[{"requests": ["r"]}]),
        [f"spec.devices.constraints[0]: Required value: {NO_ATTRIBUTE}"],
    ),
    "a constraint of two kinds, of which only the first is looked at": (
        claim("c", constraints=[{"matchAttribute": "d/a/b", "distinctAttribute": "b"}]),
        [
            'spec.devices.constraints[0].matchAttribute: Invalid value: "d/a/b": '
            "must not contain more than one slash"
        ],
    ),
    "a constraint on a bare name": (
        claim("c", match="model"),
        [
            'spec.devices.constraints[0].matchAttribute: Invalid value: "model": '
            "a fully qualified name must be a domain and a name separated by a slash"
        ],
    ),
    "references to nothing": (
        claim(
            "c",
            first_of("r", a=ask()),
            constraints=[{"requests": ["x", "r/b", "r/a/c", "r", "r"], "matchAttribute": "d/m"}],
        ),
        [
            f'spec.devices.constraints[0].requests[0]: Invalid value: "x": {REFERENCE}',
            f'spec.devices.constraints[0].requests[1]: Invalid value: "r/b": {REFERENCE}',
            f'spec.devices.constraints[0].requests[2]: Invalid value: "r/a/c": {REFERENCE}',
            'spec.devices.constraints[0].requests[4]: Duplicate value: "r"',
        ],
    ),
    "33 configurations": (
        claim("c", config=[{}] * 33),
        ["spec.devices.config: Too many: 33: must have at most 32 items"],
    ),
    "an empty configuration": (
        claim("c", config=[{}]),
        ["spec.devices.config[0].opaque: Required value"],
    ),
    "parameters that are no object": (
        claim("c", config=[{"requests": ["x"], "opaque": {"driver": "", "parameters": [1]}}]),
        [
            f'spec.devices.config[0].requests[0]: Invalid value: "x": {REFERENCE}',
            "spec.devices.config[0].opaque.driver: Required value",
            'spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": '
            "must be a valid JSON object",
        ],
    ),
    "no parameters": (
        claim("c", config=[{"opaque": {"driver": "d"}}]),
        ["spec.devices.config[0].opaque.parameters: Required value"],
    ),
    "large parameters": (
        claim("c", config=[{"opaque": {"driver": "d", "parameters": {"a": "x" * 10240}}}]),
        [
            "spec.devices.config[0].opaque.parameters: Too long: "
            "may not be more than 10240 bytes"
        ],
    ),
    "a derived attribute that nobody reads": (
        derived(("d/m", "1"), match="d/n"),
        [
            f'{REQUEST}.exactly.derivedAttributes[0].name: Invalid value: "d/m": must be '
            "referenced by at least one matchAttribute or distinctAttribute constraint targeting "
            "this request"
        ],
    ),
    "33 derived attributes": (
        derived(*((f"d/m{i}", "1") for i in range(33))),
        [f"{REQUEST}.exactly.derivedAttributes: Too many: 33: must have at most 32 items"],
    ),
    "a derived attribute without a domain": (
        derived(("m", "1"), constraints=[{"matchAttribute": "m"}]),
        [
            f'{where}: Invalid value: "m": a fully qualified name must be a domain and a name '
            "separated by a slash"
            for where in (
                f"{REQUEST}.exactly.derivedAttributes[0].name",
                "spec.devices.constraints[0].matchAttribute",
            )
        ],
    ),
    "derived attributes that cost too much together": (
        derived(
            ("d/a", "600000"),
            ("d/b", "600000"),
            constraints=[{"matchAttribute": "d/a"}, {"matchAttribute": "d/b"}],
        ),
        [
            "spec.devices: Forbidden: too complex, total cost of derived attribute CEL "
            "expressions in the claim exceeds cost limit"
        ],
    ),
    "a template with bad labels": (
        template(labels={"a": "b c"}),
        [
            'spec.metadata.labels: Invalid value: "b c": a valid label must be an empty string or '
            "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ],
    ),
    "a template with a name for its claims": (
        template(name="c", finalizers=["a/b"]),
        [
            "spec.metadata.name: Forbidden: cannot be set",
            "spec.metadata.finalizers: Forbidden: cannot be set",
        ],
    ),
    "a template with a bad claim": (
        obj("ResourceClaimTemplate", "t", spec={"spec": claim("c", {"name": "r"})["spec"]}),
        [
            "spec.spec.devices.requests[0]: Required value: "
            "exactly one of `exactly` or `firstAvailable` is required"
        ],
    ),
    "a class that is no extended resource": (
        device_class("gpu", extendedResourceName="kubernetes.io/gpu"),
        [
            'spec.extendedResourceName: Invalid value: "kubernetes.io/gpu": '
            "must be a valid extended resource name"
        ],
    ),
    "a class with a bad selector": (
        device_class("gpu", "!"),
        [
            'spec.selectors[0].cel.expression: Invalid value: "!": compilation failed: no'
        ],
    ),
    "a rule that taints badly": (
        obj(
            "DeviceTaintRule",
            "r",
            spec={"deviceSelector": {"driver": "", "pool": "", "device": "d"}, "taint": {}},
        ),
        [
            "spec.deviceSelector.driver: Required value",
            "spec.deviceSelector.pool: Required value",
            'spec.taint.key: Invalid value: "": name part must be non-empty',
            'spec.taint.key: Invalid value: "": name part must consist of alphanumeric characters, '
            "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
            "'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "spec.taint.effect: Required value",
        ],
    ),
    "a question for too many pools": (
        obj("ResourcePoolStatusRequest", "q", spec={"driver": "d", "poolName": "", "limit": 1001}),
        [
            "spec.poolName: Required value",
            "spec.limit: Invalid value: 1001: must be less than or equal to 1000",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_refused_in_the_words_of_a_server(name):
    made, expected = BAD[name]
    assert errors(made) == expected


def test_without_consumable_capacity_a_constraint_must_match():
    made = claim("c", constraints=[{}])
    assert errors(made, DEFAULT_1_36 - {"DRAConsumableCapacity"}) == [
        "spec.devices.constraints[0].matchAttribute: Required value"
    ]


def test_the_spec_of_a_claim_stays_and_is_shown_as_a_server_shows_it():
    old = default(claim("rc", request("r")), now=NOW)
    new = default(claim("rc", request("r2")), now=NOW)
    assert validate_update(old, old) == []
    (error,) = validate_update(new, old)
    assert str(error) == (
        'spec: Invalid value: {"Devices":{"Requests":[{"Name":"r2","Exactly":{'
        '"DeviceClassName":"gpu","Selectors":null,"AllocationMode":"ExactCount","Count":1,'
        '"AdminAccess":null,"Tolerations":null,"Capacity":null},"FirstAvailable":null}],'
        '"Constraints":null,"Config":null}}: field is immutable'
    )


@pytest.mark.parametrize("kind", ["ResourceClaimTemplate", "ResourcePoolStatusRequest"])
def test_templates_and_questions_stay_too(kind):
    old = default(obj(kind, "x", spec={"driver": "d", "spec": {}}), now=NOW)
    new = copy.deepcopy(old)
    new["spec"] |= {"limit": 3, "metadata": {"labels": {"a": "b"}}}
    (error,) = validate_update(new, old)
    assert (error.field, error.detail) == ("spec", "field is immutable")


def test_stored_expressions_of_a_class_stay_valid_until_their_list_changes():
    old = device_class("gpu", "!", "true", config=[CONFIG])
    renamed = copy.deepcopy(old)
    renamed["spec"]["extendedResourceName"] = "example.com/gpu"
    assert validate_update(renamed, old, "", ALL, compiler) == []
    reordered = copy.deepcopy(old)
    reordered["spec"]["selectors"] = cel("true", "!")
    (error,) = validate_update(reordered, old, "", ALL, compiler)
    assert error.field == "spec.selectors[1].cel.expression"


def test_stored_parameters_of_a_class_may_be_larger_than_new_ones():
    big = [{"opaque": {"driver": "d", "parameters": {"a": "x" * 10240}}}]
    old = device_class("gpu", config=big)
    new = device_class("gpu", "true", config=copy.deepcopy(big))
    assert validate_update(new, old, "", ALL, compiler) == []
    assert errors(old) == [
        "spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"
    ]


def test_a_rule_keeps_an_effect_that_is_no_longer_known():
    spec = {"taint": {"key": "k", "effect": "Old"}}
    rule = obj("DeviceTaintRule", "r", spec=spec)
    assert errors(rule)
    assert validate_update(rule, copy.deepcopy(rule)) == []
