"""The client over HTTP: what it holds open, it lets go."""

import threading

from dralab.runtime.remote import RemoteWatch


class Stream:
    """An open answer to a watch, in which nothing ever comes."""

    chunked = True

    def __init__(self):
        self.closed = threading.Event()

    def read_chunked(self):
        raise AssertionError("nobody may wait here: the watch is closed")

    def close(self):
        self.closed.set()

    shutdown = close


class Slow:
    """A client whose stream opens only when it is allowed to."""

    def __init__(self):
        self.asked, self.may = threading.Event(), threading.Event()
        self.answer = Stream()

    def stream(self, *_):
        self.asked.set()
        self.may.wait()
        return self.answer


def test_a_watch_that_is_closed_while_its_stream_opens_closes_the_stream():
    client = Slow()
    watch = RemoteWatch(client, "/api/v1/pods", {}, "1")
    assert client.asked.wait(10)
    watch.close()
    client.may.set()
    assert client.answer.closed.wait(10)
