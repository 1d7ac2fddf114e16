"""The public conformance tests of the CEL specification, as far as they need no messages.

They are fetched from the Go module proxy when `make conformance` runs, and never kept.
"""

import io
import math
import os
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from dataclasses import replace

import pytest

from cel.textproto import read
from dralab.cel import CelError, CompileError, compile_expression
from dralab.cel.checker import Checker
from dralab.cel.deep_recursion import run as steps
from dralab.cel.evaluation import evaluate
from dralab.cel.functions.times import duration, timestamp
from dralab.cel.library import extended
from dralab.cel.parser import parse
from dralab.cel.program import FAILURES
from dralab.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    list_of,
    map_of,
    optional_of,
)
from dralab.cel.values import Map, Optional, TypeValue, Uint, equals, key_of, new_map, type_name

VERSION = "v0.25.1"
FOLDER = "tests/simple/testdata/"
# Everything in these files is about messages, enums or unknown values.
OF_MESSAGES = {
    "dynamic", "enums", "proto2", "proto2_ext", "proto3", "unknowns", "wrappers",
}  # fmt: skip
WORDS_OF_MESSAGES = (
    "cel.expr.conformance", "TestAllTypes", "google.protobuf.", "GlobalEnum", "NestedEnum",
)  # fmt: skip
LEAST_SHARE = 0.98

pytestmark = pytest.mark.conformance


class NeedsMessage(Exception):  # noqa: N818 - a reason, not an error
    """The test is about protobuf messages."""


@pytest.fixture(scope="module")
def files():
    proxy = os.environ.get("GOPROXY", "https://proxy.golang.org").split(",")[0].split("|")[0]
    if not proxy.startswith("http"):
        proxy = "https://proxy.golang.org"
    address = f"{proxy}/cel.dev/expr/@v/{VERSION}.zip"
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            archive = zipfile.ZipFile(io.BytesIO(answer.read()))
    except (urllib.error.URLError, OSError) as error:
        pytest.skip(f"the Go module proxy is out of reach: {error}")
    found = {}
    for name in archive.namelist():
        if FOLDER in name and name.endswith(".textproto"):
            found[name.rsplit("/", 1)[1].removesuffix(".textproto")] = archive.read(name).decode()
    assert len(found) > 20
    return found


def text(octets):
    return octets.decode("utf-8")


PRIMITIVES = {
    "BOOL": BOOL, "INT64": INT, "UINT64": UINT, "DOUBLE": DOUBLE, "STRING": STRING, "BYTES": BYTES,
}  # fmt: skip


def type_of(message):
    (kind, (value, *_)), *_ = message.items()
    match kind:
        case "primitive":
            return PRIMITIVES[value]
        case "wrapper" | "message_type":
            raise NeedsMessage
        case "well_known":
            return {"TIMESTAMP": TIMESTAMP, "DURATION": DURATION}.get(value, DYN)
        case "list_type":
            return list_of(type_of(value["elem_type"][0]) if value.get("elem_type") else DYN)
        case "map_type":
            return map_of(type_of(value["key_type"][0]), type_of(value["value_type"][0]))
        case "null":
            return NULL
        case "dyn":
            return DYN
        case "type":
            return CelType("type", "", (type_of(value),)) if value else CelType("type")
        case "abstract_type":
            name = text(value["name"][0])
            params = tuple(map(type_of, value.get("parameter_types", [])))
            if name == "optional_type":
                return optional_of(*params)
            return CelType("opaque", name, params)
        case "type_param":
            return DYN
    raise NeedsMessage


def number(value):
    return float(value.replace("infinity", "inf")) if isinstance(value, str) else float(value)


def value_of(message):  # noqa: PLR0911 - one return per kind
    if not message:
        raise NeedsMessage
    (kind, (value, *_)), *_ = message.items()
    match kind:
        case "null_value":
            return None
        case "bool_value":
            return value == "true"
        case "int64_value":
            return int(value, 0) if isinstance(value, str) else value
        case "uint64_value":
            return Uint(int(value, 0))
        case "double_value":
            return number(value)
        case "string_value":
            return text(value)
        case "bytes_value":
            return value
        case "list_value":
            return [value_of(item) for item in value.get("values", [])]
        case "map_value":
            return new_map(
                {
                    key_of(value_of(entry["key"][0])): value_of(entry["value"][0])
                    for entry in value.get("entries", [])
                }
            )
        case "type_value":
            return TypeValue(text(value))
        case "object_value":
            (name, (inner, *_)), *_ = value.items()
            if name.endswith("google.protobuf.Timestamp]"):
                return _instant(inner)
            if name.endswith("google.protobuf.Duration]"):
                return _span(inner)
    raise NeedsMessage


def _instant(inner):
    seconds, nanos = int(inner.get("seconds", ["0"])[0]), int(inner.get("nanos", ["0"])[0])
    return type(timestamp(0))(seconds * 10**9 + nanos)


def _span(inner):
    seconds, nanos = int(inner.get("seconds", ["0"])[0]), int(inner.get("nanos", ["0"])[0])
    return type(duration("0s"))(seconds * 10**9 + nanos)


def same(left, right):
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    if type_name(left) != type_name(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Map):
        return len(left) == len(right) and all(
            k in right and same(v, right[k]) for k, v in left.items()
        )
    if isinstance(left, Optional):
        return left.present == right.present and same(left.value, right.value)
    return equals(left, right)


def unchecked(expression, environment, bindings):
    """Return the value of an expression whatever the checker says."""
    checker = Checker(environment)
    tree = steps(checker.node(parse(expression, macros=environment.macros, quoted_names=True)))
    return evaluate(tree, bindings)[0]


def run(test):  # noqa: C901, PLR0912 - a test has many parts
    """Return nothing where a test passes, else what is wrong; raise NeedsMessage."""
    expression = text(test["expr"][0])
    if any(
        word
        in expression.replace("google.protobuf.Timestamp", "").replace(
            "google.protobuf.Duration", ""
        )
        for word in WORDS_OF_MESSAGES
    ):
        raise NeedsMessage
    variables = {}
    for declared in test.get("type_env", []):
        name = text(declared["name"][0])
        if "ident" not in declared:
            raise NeedsMessage
        variables[name] = type_of(declared["ident"][0]["type"][0])
    bindings = {}
    for binding in test.get("bindings", []):
        held = binding["value"][0]
        if "value" not in held:
            raise NeedsMessage
        name = text(binding["key"][0])
        bindings[name] = value_of(held["value"][0])
        variables.setdefault(name, DYN)
    environment = extended().extended(variables=variables)
    environment = replace(environment, container=text(test.get("container", [b""])[0]))
    if test.get("disable_macros") == ["true"]:
        environment = replace(environment, macros=frozenset())
    wanted = test.get("value")
    typed = test.get("typed_result", [{}])[0]
    if "result" in typed:
        wanted = typed["result"]
    expected = value_of(wanted[0]) if wanted else True
    fails = "eval_error" in test or "any_eval_errors" in test
    if test.get("disable_check") == ["true"]:
        value = unchecked(expression, environment, bindings)
        if isinstance(value, CelError):
            return None if fails else f"fails: {value.message}"
        return None if not fails and same(value, expected) else f"gives {value!r}"
    try:
        program = compile_expression(expression, environment)
    except CompileError as error:
        return None if fails else f"does not compile: {error.detail}"
    if "deduced_type" in typed:
        deduced = type_of(typed["deduced_type"][0])
        if deduced != program.type:
            return f"type {program.type}, wanted {deduced}"
    if test.get("check_only") == ["true"]:
        return None
    value, _ = program.outcome(bindings)
    if isinstance(value, CelError):
        return None if fails else f"fails: {value.message}"
    if fails:
        return f"gives {value!r} and should fail"
    if not same(value, expected):
        return f"gives {value!r}, wanted {expected!r}"
    assert program.fast is not None
    try:
        fast = program.fast(*(bindings.get(name) for name in sorted(variables)))
    except FAILURES:
        return None
    return None if same(fast, value) else f"the fast form gives {fast!r}, the exact one {value!r}"


def test_what_needs_no_messages_passes_to_98_percent(files):
    passed, skipped, problems = Counter(), 0, []
    for name, content in sorted(files.items()):
        if name in OF_MESSAGES:
            continue
        for section in read(content).get("section", []):
            for test in section.get("test", []):
                label = f"{name}/{text(section['name'][0])}/{text(test['name'][0])}"
                try:
                    problem = run(test)
                except NeedsMessage:
                    skipped += 1
                    continue
                if problem is None:
                    passed[name] += 1
                else:
                    problems.append(f"{label}: {text(test['expr'][0])[:200]}: {problem}")
    total = passed.total() + len(problems)
    print(*problems, f"{passed.total()} of {total} pass, {skipped} need messages", sep="\n")  # noqa: T201 - the figure is what this test is for
    assert total > 1500
    assert passed.total() / total >= LEAST_SHARE
