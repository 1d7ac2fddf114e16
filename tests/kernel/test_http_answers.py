"""Answers of HTTP/1.1 as they come, and what is not read of them."""

import pytest

from dralab.kernel.http_answers import (
    MOST_HEAD,
    EndedError,
    HttpAnswer,
    LargeAnswerError,
    NotHttpError,
)


@pytest.mark.parametrize(
    ("before", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX", b"a" * 100),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"a" * 100),
        (b"HTTP/1.1 1", b"00 Continue\r\n\r\nHTTP/1.1 1"),
    ],
    ids=["headers", "trailers", "one trailer", "an extension", "no answer yet"],
)
def test_nothing_endless_beside_the_body_is_read(before, piece):
    reading = HttpAnswer()
    reading.feed(before)
    with pytest.raises((LargeAnswerError, NotHttpError)):  # noqa: PT012 - any of them
        for _ in range(2 * MOST_HEAD // len(piece)):
            reading.feed(piece)


def test_the_headers_are_those_of_the_answer_alone():
    answer = HttpAnswer()
    for data in (
        b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Enc",
        b"oding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Trailer: c\r\n\r\n",
        b"HTTP/1.1 500 Other\r\nX-D: e\r\nContent-Length: 1\r\n\r\ny",
    ):
        answer.feed(data)
    assert answer.headers() == [("X-A", "b"), ("Transfer-Encoding", "chunked")]
    assert (answer.status, answer.take(), answer.over) == (200, b"x", True)
    assert not answer.keeps_alive  # the server says more than it was asked for


def test_a_body_larger_than_allowed_is_refused_with_its_limit():
    answer = HttpAnswer(most_body=3)
    with pytest.raises(LargeAnswerError) as raised:
        answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")
    assert (raised.value.part, raised.value.limit) == ("body", 3)


def test_an_answer_without_a_length_ends_with_its_connection():
    answer = HttpAnswer()
    answer.feed(b"HTTP/1.1 200 OK\r\n\r\nbody")
    answer.feed(b"")
    assert (answer.over, answer.keeps_alive, answer.take()) == (True, False, b"body")
    half = HttpAnswer()
    half.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody")
    with pytest.raises(EndedError):
        half.feed(b"")


def test_an_answer_to_head_has_no_body():
    answer = HttpAnswer(bodiless=True)
    answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    assert (answer.over, answer.named()) == (True, {"content-length": "9"})


UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"


def test_another_protocol_is_an_answer_only_where_it_was_asked_for():
    asked = HttpAnswer(upgrades=True)
    asked.feed(UPGRADED)
    assert (asked.status, asked.over, asked.named()["upgrade"]) == (101, True, "x")
    with pytest.raises(NotHttpError):
        HttpAnswer().feed(UPGRADED)
