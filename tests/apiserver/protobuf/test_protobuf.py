"""Protobuf bodies: recorded ones, every kind there and back, and hostile input."""

import base64
import json
import re
import struct
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.api.messages import Messages
from dralab.apiserver.protobuf import MAGIC, ProtobufError, decode
from dralab.apiserver.protobuf.decoding import duration
from dralab.apiserver.protobuf.encoding import encode
from dralab.apiserver.protobuf.plans import SPECIAL, plan_of_object

SHARED = Path(__file__).parents[3] / "../shared/testdata"
BODIES = SHARED / "kubernetes-protobuf/bodies"
DEFAULTS = SHARED / "apiserver/defaults.json"


def recorded():
    return sorted(BODIES.glob("raw-*.bin"))


def test_the_recorded_bodies_are_read_as_they_were_meant():
    if not recorded():
        pytest.skip("the recorded bodies are not beside this checkout")
    wanted = json.loads((BODIES / "decoded.json").read_text())
    for path in recorded():
        found = decode(path.read_bytes())
        expected = wanted[path.stem]
        assert {"apiVersion", "kind"} <= found.keys()
        assert {key: found[key] for key in found if key in expected or key == "spec"} == expected


# --- An encoder, as plain as can be ---------------------------------------------------------


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def chunk(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def scalar(number, type_, value):
    if type_ == "string":
        return chunk(number, value.encode())
    if type_ == "bytes":
        return chunk(number, base64.b64decode(value))
    if type_ == "double":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(int(value))


def seconds(text):
    since = datetime.fromisoformat(text) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return scalar(1, "int64", since.days * 86400 + since.seconds) + scalar(
        2, "int32", since.microseconds * 1000
    )


def one(number, type_, value):
    if type_ not in Messages.standard():
        return scalar(number, type_, value)
    match SPECIAL.get(type_):
        case "time" | "micro-time":
            inside = seconds(value) if value else b""
        case "quantity":
            inside = chunk(1, str(value).encode())
        case "json":
            inside = chunk(1, json.dumps(value).encode())
        case "int-or-string":
            inside = scalar(1, "int64", isinstance(value, str))
            inside += (
                chunk(3, value.encode()) if isinstance(value, str) else scalar(2, "int32", value)
            )
        case "duration":
            pytest.fail("no duration in the examples")
        case _ if isinstance(value, list):
            inside = b"".join(chunk(1, item.encode()) for item in value)
        case _:
            inside = message(type_, value)
    return chunk(number, inside)


def message(name, value):
    out = b""
    for number, field in sorted(Messages.standard().fields(name).items()):
        if field.inline:
            out += chunk(number, message(field.type, value))
        elif value.get(field.name) is None:
            continue
        elif field.map:
            key_type, value_type = field.type.split(",")
            for key, item in value[field.name].items():
                out += chunk(number, scalar(1, key_type, key) + one(2, value_type, item))
        elif field.list:
            out += b"".join(one(number, field.type, item) for item in value[field.name])
        else:
            out += one(number, field.type, value[field.name])
    return out


def enveloped(api_version, kind, inside):
    type_meta = chunk(1, api_version.encode()) + chunk(2, kind.encode())
    return MAGIC + chunk(1, type_meta) + chunk(2, inside)


def encoded(obj):
    plan = plan_of_object(obj["apiVersion"], obj["kind"])
    assert plan is not None, obj["kind"]
    return enveloped(obj["apiVersion"], obj["kind"], message(plan.name, obj))


def without_empty(value):
    """Drop what Go would neither send nor print: empty lists, maps, and what they leave empty."""
    if isinstance(value, dict):
        found = {key: without_empty(item) for key, item in value.items()}
        return {
            key: item for key, item in found.items() if item not in (None, [], {}, "", 0, False)
        }
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value


def test_every_kind_of_object_comes_back_as_it_was_sent():
    if not DEFAULTS.exists():
        pytest.skip("the recorded objects are not beside this checkout")
    text = DEFAULTS.read_text().replace('"TIME"', '"2026-01-02T03:04:05Z"')
    text = re.sub(r'("(?:eventTime|acquireTime|renewTime)":\s*".*?)Z"', r'\1.000000Z"', text)
    cases = json.loads(text)
    cases = cases.get("cases", cases) if isinstance(cases, dict) else cases
    count = 0
    for case in cases if isinstance(cases, list) else cases.values():
        obj = case.get("answer") if isinstance(case, dict) else None
        if not isinstance(obj, dict) or "kind" not in obj or obj["kind"] == "Status":
            continue
        if plan_of_object(obj["apiVersion"], obj["kind"]) is None:
            continue
        for claim in obj.get("spec", {}).get("volumeClaimTemplates", ()):
            # In protobuf, a type inside another has no type of its own.
            del claim["kind"], claim["apiVersion"]
        assert without_empty(decode(encoded(obj))) == without_empty(obj), obj["kind"]
        assert without_empty(decode(encode(obj))) == without_empty(obj), obj["kind"]
        count += 1
    assert count > 60


# --- What Go leaves out, and what it does not -------------------------------------------------


def deployment(spec):
    return enveloped("apps/v1", "Deployment", chunk(2, spec))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (scalar(1, "int32", 0), {"replicas": 0}),
        (scalar(5, "int32", 0), {}),
        (scalar(7, "bool", 0), {}),
        (scalar(7, "bool", 1), {"paused": True}),
        (scalar(1, "int32", -3), {"replicas": -3}),
        (chunk(4, b""), {}),
        (chunk(2, b""), {"selector": {}}),
        (scalar(99, "int32", 7) + chunk(98, b"xx") + scalar(1, "int32", 2), {"replicas": 2}),
    ],
)
def test_a_zero_is_kept_where_go_keeps_it(spec, expected):
    found = decode(deployment(spec)).get("spec", {})
    assert found == expected


def test_maps_may_leave_out_a_key_or_a_value():
    data = enveloped("v1", "ConfigMap", chunk(2, chunk(2, b"v")) + chunk(2, chunk(1, b"k")))
    assert decode(data)["data"] == {"": "v", "k": ""}


def test_bytes_become_base64_and_numbers_of_either_form_are_read():
    data = enveloped("v1", "Secret", chunk(2, chunk(1, b"k") + chunk(2, b"\x00\xff")))
    assert decode(data)["data"] == {"k": "AP8="}


def test_options_come_with_the_version_of_their_resource():
    inside = scalar(1, "int64", 0) + chunk(4, b"Background")
    found = decode(enveloped("resource.k8s.io/v1", "DeleteOptions", inside))
    assert found["gracePeriodSeconds"] == 0
    assert found["propagationPolicy"] == "Background"


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (2_000_000, "2ms"),
        (1_000_000_000, "1s"),
        (1_250_000_000, "1.25s"),
        (61_000_000_000, "1m1s"),
        (3_600_000_000_000, "1h0m0s"),
        (-1_500_000_000, "-1.5s"),
    ],
)
def test_durations_read_as_in_go(nanoseconds, text):
    assert duration(nanoseconds) == text


# --- Hostile input ------------------------------------------------------------------------------

HOSTILE = {
    "nothing": (b"", "does not appear to be a protobuf message"),
    "something else": (b"{}", "does not appear to be a protobuf message"),
    "no type": (MAGIC, 'no kind ""'),
    "an unknown type": (enveloped("v1", "Frob", b""), 'no kind "Frob" is known in version "v1"'),
    "a length beyond the end": (enveloped("v1", "Pod", b"\x0a\x7f"), "EOF"),
    "a number without an end": (MAGIC + b"\xff" * 3, "EOF"),
    "a number too long": (MAGIC + b"\xff" * 12, "too long"),
    "a group": (enveloped("v1", "Pod", b"\x0b"), "illegal wire type|wrong wire type"),
    "text that is none": (
        enveloped("v1", "Pod", chunk(1, chunk(1, b"\xff\xfe"))),
        "not valid UTF-8",
    ),
    "a number for a message": (enveloped("v1", "Pod", scalar(1, "int32", 1)), "wrong wire type"),
    "a time beyond all times": (
        enveloped("v1", "Pod", chunk(1, chunk(8, scalar(1, "int64", 1 << 60)))),
        "out of range",
    ),
    "JSON inside that is none": (
        enveloped("apps/v1", "ControllerRevision", chunk(2, chunk(1, b"{"))),
        "embedded JSON",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_body_that_cannot_be_read_is_refused(case):
    data, why = HOSTILE[case]
    with pytest.raises(ProtobufError, match=why):
        decode(data)


def test_a_body_nested_too_deep_is_refused():
    inside = b""
    for _ in range(300):
        inside = chunk(28, inside)  # `not`
    schema = chunk(4, chunk(1, inside))
    data = enveloped(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", chunk(2, chunk(7, schema))
    )
    with pytest.raises(ProtobufError, match="deep"):
        decode(data)


def test_a_body_of_a_million_nothings_is_refused():
    with pytest.raises(ProtobufError, match="more than"):
        decode(enveloped("v1", "PodList", chunk(2, b"") * 600_000))


@given(st.binary(max_size=200), st.sampled_from(["Pod", "Secret", "Event", "PodList"]))
def test_noise_is_refused_or_read_but_never_breaks(noise, kind):
    for data in (noise, MAGIC + noise, enveloped("v1", kind, noise)):
        try:
            found = decode(data)
        except ProtobufError:
            continue
        assert isinstance(found, dict)


@given(st.data())
def test_a_broken_body_is_refused_or_read_but_never_breaks(data):
    paths = recorded()
    if not paths:
        return
    body = bytearray(data.draw(st.sampled_from(paths)).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(decode(bytes(body)), dict)
    except ProtobufError:
        return
