"""Environments other than the device's: variables with dotted names, defaults, other results."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cel.expressions import devices, expressions
from cel.projection import projection
from dralab.cel import (
    CelError,
    CelFeatures,
    CompileError,
    DeclaredSize,
    check,
    compile_expression,
    compile_selector,
    device_value,
    environment,
    kubernetes,
)
from dralab.cel.types import BOOL, DYN, QUANTITY, STRING, map_of
from dralab.cel.values import DefaultMap, Map, Quantity

TYPED = kubernetes().extended(
    variables={
        "device.driverName": STRING,
        "device.stringAttributes": map_of(STRING, STRING),
        "device.quantityAttributes": map_of(STRING, QUANTITY),
        "device.attributes": map_of(STRING, DYN),
    },
    sizes={"device.driverName": DeclaredSize(63)},
    result=(BOOL,),
)


def typed(**strings):
    return {
        "device.driverName": "foozer.example.com",
        "device.stringAttributes": DefaultMap(strings, ""),
        "device.quantityAttributes": DefaultMap({"memory": Quantity(2**30)}, Quantity(0)),
        "device.attributes": Map(strings),
    }


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("device.stringAttributes['nope'] == ''", True),
        ("device.stringAttributes['model'] == 'm1'", True),
        ("'nope' in device.stringAttributes", False),
        ("device.quantityAttributes['nope'].compareTo(quantity('1')) < 0", True),
        ("device.quantityAttributes['memory'].compareTo(quantity('1Gi')) == 0", True),
        ("device.driverName.startsWith('foozer')", True),
    ],
)
def test_typed_maps_answer_with_their_defaults(text, answer):
    program = compile_expression(text, TYPED)
    values = typed(model="m1")
    assert program.value(values)[0] is answer
    assert program.fast(*(values[name] for name in sorted(values))) is answer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device == 1", "undeclared reference to 'device'"),
        ("device.quantityAttributes['a'] > quantity('1')", "found no matching overload for '_>_'"),
        ("1 + 1", "must evaluate to bool, not int"),
    ],
)
def test_what_an_environment_lacks_is_a_compile_error(text, message):
    with pytest.raises(CompileError, match=message):
        compile_expression(text, TYPED)
    assert message in check(text, TYPED).problems[0]


def test_dotted_variables_are_paths_of_their_own():
    program = compile_expression("device.stringAttributes['a'] == device.driverName", TYPED)
    assert program.paths == (("device.driverName",), ("device.stringAttributes", "a"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ("?!", "Syntax error"),
        ("device.nope", "undefined field 'nope'"),
        ("nope", "undeclared reference to 'nope' (in container '')"),
        ("duration('x') > duration('1s')", "invalid duration argument"),
        ("timestamp('x') == timestamp('y')", "invalid timestamp argument"),
        ("device.driver.matches('(')", "invalid matches argument"),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'"),
        ("'%d'.format(['a']) == ''", "decimal clause can only be used on integers"),
        ("has(device)", "invalid argument to has() macro"),
        ("1.exists(x, true)", "cannot be range of a comprehension"),
        ("true && 1", "expected type 'bool' but found 'int'"),
        ("if", "reserved identifier: if"),
        ("'\\q' == ''", "Syntax error"),
    ],
)
def test_compile_errors_speak_as_upstream_does(text, message):
    with pytest.raises(CompileError) as caught:
        compile_selector(text)
    assert message in caught.value.detail


def test_a_compile_error_marks_the_place():
    with pytest.raises(CompileError) as caught:
        compile_selector("true &&\n  device.nope")
    assert caught.value.detail == (
        "compilation failed: ERROR: <input>:2:9: undefined field 'nope'\n"
        " |   device.nope\n"
        " | ........^"
    )


def test_every_problem_is_listed():
    with pytest.raises(CompileError) as caught:
        compile_selector("a && b && device.c")
    assert len(caught.value.problems) == 3


def test_new_expressions_are_held_to_the_gates_and_stored_ones_are_not():
    off = CelFeatures(consumable_capacity=False, list_type_attributes=False)
    for text in ("device.allowMultipleAllocations", 'device.attributes["a"].b.includes(1)'):
        with pytest.raises(CompileError):
            compile_selector(text, off, "new")
        compile_selector(text, off, "stored")
        compile_selector(text, CelFeatures(), "new")


@pytest.mark.parametrize(
    ("text", "works"),
    [
        ('device.attributes["a"].b', True),
        ("device.driver", True),
        ('semver("1.0.0")', True),
        ("[device.driver]", True),
        ("1.5", False),
        ('quantity("1")', False),
        ("[[1]]", False),
    ],
)
def test_derived_attributes_are_scalars_or_lists_of_them(text, works):
    verdict = check(text, environment(purpose="derived attribute"))
    assert (verdict.problems == ()) is works


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('device.attributes["a"].b', (("attributes", "a", "b"),)),
        (
            'device.attributes["a"]["b"] && device.driver == "x"',
            (("attributes", "a", "b"), ("driver",)),
        ),
        ('has(device.attributes["a"].b)', (("attributes", "a", "b"),)),
        ('device.attributes["a"].?b.orValue(true)', (("attributes", "a", "b"),)),
        ('device.attributes[?"a"].hasValue()', (("attributes", "a"),)),
        ('"b" in device.attributes["a"]', (("attributes", "a", "b"),)),
        (
            'cel.bind(x, device.attributes["a"], x.b && x.c)',
            (("attributes", "a", "b"), ("attributes", "a", "c")),
        ),
        ('device.attributes["a"].exists(k, k == "b")', (("attributes", "a"),)),
        (
            'device.attributes["a"].exists(k, k == "b") && device.attributes["a"].b',
            (("attributes", "a"),),
        ),
        ("device.attributes[device.driver].b", (("attributes",), ("driver",))),
        ("device == device", ((),)),
        ("true", ()),
        (
            '(device.driver == "x" ? device.attributes : device.attributes)["a"].b',
            (("attributes",), ("driver",)),
        ),
    ],
)
def test_a_selector_knows_what_it_reads(text, paths):
    assert compile_selector(text).paths == paths


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(text=expressions(), one=devices(), other=devices())
def test_devices_with_equal_keys_get_equal_answers(text, one, other):
    selector = compile_selector(text)

    def answer(device):
        found, cost = selector.outcome(device)
        return str(found), cost

    key = projection(selector.paths)
    if key(one) == key(other):
        assert answer(one) == answer(other)
    # What lies outside the paths may change: take from the other device all that is not read.
    mixed = Map(other)
    for path in selector.paths:
        if path:
            mixed[path[0]] = one[path[0]]
    if () not in selector.paths:
        assert key(mixed) == key(one)
        assert answer(mixed) == answer(one)


@pytest.mark.thorough
@settings(max_examples=120, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                [
                    "device",
                    ".",
                    "attributes",
                    "capacity",
                    "[",
                    "]",
                    "(",
                    ")",
                    "{",
                    "}",
                    "?",
                    ":",
                    ",",
                    "&&",
                    "||",
                    "!",
                    "-",
                    "+",
                    "*",
                    "/",
                    "%",
                    "==",
                    "<",
                    "in",
                    "has",
                    "map",
                    "exists",
                    "cel",
                    "bind",
                    "optMap",
                    "x",
                    "1",
                    "1u",
                    "2.5",
                    "'a'",
                    '"b"',
                    "b'c'",
                    "true",
                    "null",
                    "format",
                    "%d",
                    "matches",
                ]
            ),
            max_size=25,
        ).map(" ".join),
        expressions().map(lambda text: text[: len(text) // 2] + text[len(text) // 2 + 1 :]),
    )
)
def test_hostile_text_gives_an_answer_or_one_clear_error(text):
    device = device_value(driver="d", attributes={"a": {"int": 1}})
    verdict = check(text, environment())
    assert verdict.max_cost >= 0
    if verdict.problems:
        assert verdict.problems[0]
        return
    selector = compile_selector(text)
    answer, cost = selector.outcome(device)
    assert cost >= 0
    try:
        found = selector.evaluate(device)
    except CelError as error:
        found = error
    assert type(found) is type(answer)
    assert str(found) == str(answer)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "a{1000}{1000}", "(?=a)", r"(a)\\1"]
)
def test_hostile_patterns_end_at_once_or_are_refused(pattern):
    text = f'device.attributes["d"].text.matches(r"{pattern}")'
    device = device_value(driver="d", attributes={"text": {"string": "a" * 5000 + "!"}})
    verdict = check(text, environment())
    if verdict.problems:
        assert "invalid matches argument" in verdict.problems[0]
    else:
        assert compile_selector(text).evaluate(device) in {True, False}


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ({}, "attribute x: unsupported attribute value"),
        ({"version": "1"}, "attribute x: parse semantic version"),
        ({"int": "1"}, "attribute x: unsupported attribute value"),
        ({"int": 2**63}, "attribute x: unsupported attribute value"),
    ],
)
def test_an_attribute_without_usable_value_is_an_error_of_the_device(attribute, message):
    with pytest.raises(CelError, match=message):
        device_value(driver="d", attributes={"x": attribute})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('quantity("1Ti").isInteger()', True),
        ('quantity("1Pi").isInteger()', False),
        ('quantity("1.0").isInteger()', False),
        ('quantity("1k").add(1).asInteger() == 1001', True),
        ('quantity("1").add(quantity("1.0")).isInteger()', False),
        ('quantity("1Pi") == quantity("1125899906842624")', True),
        ('format.date().validate("2024-02-30").hasValue()', True),
        ('format.dns1123LabelPrefix().validate("a-").hasValue()', False),
        ('semver("v01.2", true) == semver("1.2.0")', True),
        ('isSemver("1.2.3-01")', False),
        ('isURL("http://a:b/")', False),
        ('url("https://[::1]:80/a%20b?c=d#e").getHostname() == "::1"', True),
        ('isIP("::ffff:1.2.3.4") || isIP("fe80::1%eth0") || isIP("01.2.3.4")', False),
        ('cidr("10.0.0.0/8").containsCIDR(cidr("10.1.0.0/16"))', True),
        ('ip("10.0.0.1").isGlobalUnicast() && !ip("127.0.0.1").isGlobalUnicast()', True),
    ],
)
def test_the_libraries_of_kubernetes_read_as_upstream_does(text, answer):
    selector = compile_selector(text)
    assert selector.evaluate(device_value(driver="d")) is answer
    assert selector.outcome(device_value(driver="d"))[0] is answer
