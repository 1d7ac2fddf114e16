"""The streams that tell pages when to look: for whom, how often, and what a slow page costs."""

import asyncio

import pytest

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.asgi_base import AsgiBase
from dralab.apiserver.http.messages import HttpResponse
from dralab.web.live_streams import LOOK, LiveStreams, StreamLimits


class LiveDesk:
    """A desk whose source changes when a test says so."""

    follows = True

    def __init__(self):
        self.listeners = []
        self.rest = 0
        self.released = 0

    def changes(self):
        return b"{}"

    def follow(self, changed):
        self.listeners.append(changed)
        return lambda: self.listeners.remove(changed)

    def until_next(self):
        return self.rest

    def release(self):
        self.released += 1

    def change(self):
        for tell in self.listeners:
            tell()


class Edge(AsgiBase):
    """The application around the streams."""

    def admit(self, request):
        raise NotImplementedError

    def submit(self, request):
        raise NotImplementedError


class Reader:
    """A page: `pieces` has what it was sent; it reads nothing while `reads` is not set."""

    def __init__(self):
        self.pieces = []
        self.started = None
        self.ended = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = asyncio.Event()
        self.news = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.started = message
        elif not message["more_body"]:
            self.ended = True
        else:
            self.pieces.append(message["body"])
        self.news.set()

    async def has(self, number):
        while len(self.pieces) < number:
            self.news.clear()
            await self.news.wait()


def follows(scenario, **limits):
    """Run a scenario with a desk, streams, and a reader of one stream."""

    async def run():
        desk, edge, reader = LiveDesk(), Edge(), Reader()
        edge._begin()
        streams = LiveStreams(lambda work: work(), StreamLimits(**limits))
        stream = streams.open(desk)
        task = asyncio.create_task(stream.answer(edge, {}, reader.receive, reader.send))
        await scenario(desk, streams, reader, task)
        reader.gone.set()
        async with asyncio.timeout(60):
            await task
        assert desk.listeners == []

    asyncio.run(run())


def test_a_page_looks_at_once_and_after_each_change():
    async def scenario(desk, streams, reader, task):
        await reader.has(1)
        desk.change()
        await reader.has(2)
        assert dict(reader.started["headers"])[b"Content-Type"] == b"text/event-stream"
        assert reader.pieces == [LOOK, LOOK]

    follows(scenario)


def test_many_changes_are_one_word():
    async def scenario(desk, streams, reader, task):
        await reader.has(1)
        for _ in range(1000):
            desk.change()
        await reader.has(2)
        await asyncio.sleep(0)
        assert len(reader.pieces) == 2

    follows(scenario)


def test_a_slow_page_costs_one_word_and_then_its_connection():
    async def scenario(desk, streams, reader, task):
        await reader.has(1)
        reader.reads.clear()
        for _ in range(1000):
            desk.change()
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await task
        assert not reader.ended
        assert reader.pieces == [LOOK]

    follows(scenario, slow=0.01)


def test_a_page_looks_now_and_then_where_nothing_is_told():
    async def scenario(desk, streams, reader, task):
        desk.follows = False
        await reader.has(4)

    follows(scenario, listed=0.001, quiet=3600.0)


def test_a_change_is_told_once_it_may_be_read():
    async def scenario(desk, streams, reader, task):
        await reader.has(1)
        desk.rest = 10**18
        desk.change()
        await asyncio.sleep(0.01)
        assert len(reader.pieces) == 1

    follows(scenario)


def test_a_stream_ends_after_its_time():
    async def scenario(desk, streams, reader, task):
        async with asyncio.timeout(60):
            await task
        assert reader.ended

    follows(scenario, longest=0.01)


def test_a_server_that_stops_ends_its_streams():
    async def scenario(desk, streams, reader, task):
        await reader.has(1)
        streams.close()
        async with asyncio.timeout(60):
            await task
        assert reader.ended

    follows(scenario)


def test_there_are_only_so_many_streams_and_an_ended_one_makes_room():
    async def scenario(desk, streams, reader, task):
        refused = streams.open(desk)
        assert isinstance(refused, HttpResponse)
        assert refused.status == 429
        reader.gone.set()
        await task
        assert not isinstance(streams.open(desk), HttpResponse)

    follows(scenario, streams=1)


def test_the_source_is_let_go_after_the_last_stream():
    async def scenario(desk, streams, reader, task):
        await reader.has(1)
        assert desk.released == 0
        reader.gone.set()
        await task
        await asyncio.sleep(0.01)
        assert desk.released == 1

    follows(scenario, after=0.0)


def test_only_what_changes_may_be_followed():
    from web.pages import desk

    with pytest.raises(ApiError, match="lab does not change"):
        desk().changes()
