"""Runs a decision process that is a file with a ZeroMQ loop, unmodified, in a thread of this process."""

import queue
import runpy
import sys
import threading
from types import SimpleNamespace

import orjson

from dralab.simulation.engines.batch import protocol


class _Socket:
    """The end of the socket that the file sees."""

    def __init__(self, asked, answered):
        self._asked, self._answered = asked, answered

    def bind(self, _):
        self._answered.put("ready")

    def recv(self):
        return self._asked.get()

    def send_string(self, text):
        self._answered.put(text)


class DecisionFile:
    """The scheduler that a file is; a context manager that ends with it."""

    def __init__(self, path, mode):
        self._asked, self._answered = queue.Queue(), queue.Queue()
        self._path, self._mode = path, mode
        self._reader = protocol.ReplyReader()

    def __enter__(self):
        zmq = SimpleNamespace(
            REP=0,
            Context=lambda: SimpleNamespace(socket=lambda _: _Socket(self._asked, self._answered)),
        )
        before = sys.argv, sys.modules.get("zmq")
        sys.argv, sys.modules["zmq"] = [str(self._path), "here", self._mode], zmq
        self._thread = threading.Thread(target=runpy.run_path, args=(str(self._path),))
        self._thread.start()
        assert self._answered.get(timeout=150) == "ready"
        sys.argv = before[0]
        if before[1] is None:
            del sys.modules["zmq"]
        else:
            sys.modules["zmq"] = before[1]
        return self

    def __exit__(self, *_):
        self._asked.put(orjson.dumps(protocol.ending(0)))  # where the run did not come to its end
        self._thread.join()

    def begin(self, beginning):
        return self._ask(protocol.beginning(beginning), 0)

    def decide(self, news):
        self._reader.learn(news.submitted)
        return self._ask(protocol.news(news), news.now)

    def end(self, now):
        self._ask(protocol.ending(now), now)

    def _ask(self, message, now):
        self._asked.put(orjson.dumps(message))
        return self._reader.answer(orjson.loads(self._answered.get(timeout=150)), now)
