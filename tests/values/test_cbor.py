"""CBOR: golden bytes, refusals in upstream's words, and what is written is read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.values import cbor

WRITTEN = [
    (0, "00"), (23, "17"), (24, "1818"), (255, "18ff"), (256, "190100"), (65536, "1a00010000"),
    (1 << 32, "1b0000000100000000"), (-1, "20"), (-500, "3901f3"), (1.5, "f93e00"),
    (100000.0, "fa47c35000"), (1.1, "fb3ff199999999999a"), (True, "f5"), (False, "f4"),
    (None, "f6"), ("", "40"), ("é", "42c3a9"), ([], "80"), ({}, "a0"), ({"a": "b"}, "a141614162"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "golden"), WRITTEN)
def test_a_value_is_written_in_as_few_bytes_as_it_needs(value, golden):
    assert cbor.dumps(value).hex() == f"d9d9f7{golden}"
    assert cbor.loads(bytes.fromhex(golden)) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("6161", "a"),  # a text string
        ("5f41614162ff", "ab"),  # in pieces
        ("9f0102ff", [1, 2]),
        ("bf616101ff", {"a": 1}),
        ("d64171", "cQ=="),
        ("d54371fbff", "cfv_"),
        ("d742abcd", "ABCD"),
        ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
        ("f814", False),
        ("d9d9f7d9d9f701", 1),
    ],
)
def test_what_others_write_is_read(data, value):
    assert cbor.loads(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", "EOF"),
        ("42", "unexpected EOF"),
        ("9bffffffffffffffff", "unexpected EOF"),
        ("ff", 'cbor: unexpected "break" code'),
        ("82ff", 'cbor: unexpected "break" code'),
        ("0000", "cbor: 1 bytes of extraneous data starting at index 1"),
        ("a2416101416102", 'cbor: found duplicate map key "a" at map element index 1'),
        ("a10101", "cbor: cannot unmarshal a map key into Go value of type string"),
        ("61ff", "cbor: invalid UTF-8 string"),
        ("1bffffffffffffffff", "overflows Go's int64"),
        ("c24101", "cbor: cannot unmarshal a bignum"),
        ("f97e00", "is not accepted by protocol: floating-point NaN"),
        ("fa7f800000", "is not accepted by protocol: floating-point infinity"),
        ("f7", "is not accepted by protocol: simple value 23"),
        ("f8ff", "is not accepted by protocol: simple value 255"),
        ("1c", "cbor: invalid additional information 28 for type positive integer"),
        ("1f", "cbor: invalid additional information 31 for type positive integer"),
        ("fc", "cbor: invalid additional information 28 for type primitives"),
        (
            "5f6161ff",
            "cbor: wrong element type UTF-8 text string for indefinite-length byte string",
        ),
        ("81" * 300 + "00", "cbor: exceeded max nested level 200"),
        ("9a00200000" + "80" * 160_001, "cbor: exceeded max number of values 160000"),
        ("9f" * 100_000, "cbor: exceeded max nested level 200"),
    ],
)
def test_what_is_not_json_in_cbor_is_refused(data, words):
    with pytest.raises(cbor.CborError) as refusal:
        cbor.loads(bytes.fromhex(data))
    assert words in str(refusal.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_what_is_written_is_read_again(value):
    assert cbor.loads(cbor.dumps(value)) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    try:
        value = cbor.loads(data)
    except cbor.CborError:
        return
    assert cbor.loads(cbor.dumps(value)) == value
