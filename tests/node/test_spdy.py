"""SPDY frames, as kubectl sends them inside WebSockets."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.node.spdy import (
    DICTIONARY,
    LONGEST_FRAME,
    Frame,
    FrameReader,
    FrameType,
    FrameWriter,
    SpdyError,
)

NUMBERS = st.integers(1, 2**31 - 1)
NAMES = st.text("abcdefghijklmnop-", min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30)
HEADERS = st.dictionaries(NAMES, VALUES, max_size=5)
FRAMES = st.one_of(
    st.builds(
        Frame, type=st.just(FrameType.DATA), stream=NUMBERS, payload=st.binary(), fin=st.booleans()
    ),
    st.builds(
        Frame,
        type=st.sampled_from([FrameType.SYN_STREAM, FrameType.SYN_REPLY, FrameType.HEADERS]),
        stream=NUMBERS,
        headers=HEADERS,
        fin=st.booleans(),
    ),
    st.builds(
        Frame,
        type=st.sampled_from([FrameType.RST_STREAM, FrameType.GOAWAY]),
        stream=NUMBERS,
        payload=st.binary(min_size=4, max_size=4),
    ),
    st.builds(Frame, type=st.just(FrameType.PING), payload=st.binary(min_size=4, max_size=4)),
)


def test_both_sides_suppose_the_words_of_the_specification():
    # The draft gives the dictionary as bytes; a zlib stream that uses it carries this sum.
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


@pytest.mark.thorough
@given(st.lists(FRAMES, max_size=6), st.data())
def test_frames_survive_any_cut_of_the_stream(frames, data):
    writer, reader, found = FrameWriter(), FrameReader(), []
    stream = b"".join(writer.frame(each) for each in frames)
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert found == frames


def syn(block):
    payload = bytes(10) + block
    return b"\x80\x03\x00\x01\x00" + len(payload).to_bytes(3, "big") + payload


def packed(text):
    deflate = zlib.compressobj(zdict=DICTIONARY)
    return deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH)


BROKEN = {
    "version 2": b"\x80\x02\x00\x01\x00\x00\x00\x00",
    "a huge frame": b"\x00\x00\x00\x01\x00" + (LONGEST_FRAME + 1).to_bytes(3, "big"),
    "no number": b"\x80\x03\x00\x03\x00\x00\x00\x02\x00\x00",
    "headers that are not packed": syn(b"plain"),
    "headers without an end": syn(packed(b"\0\0\0\2\0\0\0\5ab")),
    "a bomb": syn(packed(b"\0\0\0\1\0\1\0\0" + b"x" * 1_000_000)),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_refused(data):
    with pytest.raises(SpdyError):
        list(FrameReader().feed(data))


def test_frames_of_unknown_kinds_and_windows_are_passed_over():
    unknown = b"\x80\x03\x00\x63\x00\x00\x00\x01x"
    window = b"\x80\x03\x00\x09\x00\x00\x00\x08" + bytes(8)
    ping = Frame(type=FrameType.PING, payload=b"\0\0\0\1")
    assert list(FrameReader().feed(unknown + window + FrameWriter().frame(ping))) == [ping]
