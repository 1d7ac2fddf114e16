"""Streams beside requests: framed once, held where a client is full, and never in its way."""

import asyncio

import pytest

from dralab.apiserver.http.connections.byte_feeds import Feed
from dralab.apiserver.http.connections.stream_turns import StreamTurns


class Client:
    """An outlet whose client reads when told."""

    def __init__(self, room=100):
        self.room, self.got, self.is_gone, self.ready = room, [], False, None

    @property
    def is_full(self):
        return self.is_gone or len(self.got) >= self.room

    def write(self, chunk):
        self.got.append(chunk)

    def notify(self, ready):
        self.ready = ready

    def close(self):
        self.ready = lambda: None


def run(scene, *, timers=False):
    async def main():
        loop = asyncio.get_running_loop()
        turns = StreamTurns(loop, timers=timers)
        tasks = []

        async def begin(source, client):
            tasks.append(
                asyncio.create_task(turns.sent(source, client, lambda stream: stream.set()))
            )
            await asyncio.sleep(0)
            return tasks[-1]

        try:
            async with asyncio.timeout(30):
                await scene(begin)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_a_stream_is_sent_in_chunks_until_its_end():
    async def scene(begin):
        source, client = Feed(), Client()
        source.put(b"before")
        task = await begin(source, client)
        await asyncio.sleep(0)
        source.put(b"a" * 17)
        source.end()
        assert await task
        assert client.got == [b"6\r\nbefore\r\n", b"11\r\n" + b"a" * 17 + b"\r\n"]

    run(scene)


def test_a_client_that_is_full_gets_the_rest_when_it_has_read():
    async def scene(begin):
        source, client = Feed(), Client(room=0)
        task = await begin(source, client)
        source.put(b"x")
        source.end()
        await asyncio.sleep(0)
        assert not client.got
        client.room = 9
        client.ready()
        assert await task
        assert client.got == [b"1\r\nx\r\n"]

    run(scene)


@pytest.mark.parametrize("why", ["gone", "cut"])
def test_a_stream_ends_unfinished_with_its_client_or_its_source(why):
    async def scene(begin):
        source, client = Feed(), Client(room=0)
        task = await begin(source, client)
        source.put(b"x")
        if why == "gone":
            client.is_gone = True
            client.ready()
        else:
            source.abort("too slow")
        assert not await task
        assert not client.got
        assert not source.put(b"y")

    run(scene)


def test_what_many_watch_is_framed_once():
    items = (b"change",)

    class Shared(Feed):
        def take_items(self):
            return items if super().take_items() else ()

    async def scene(begin):
        sources, clients = [Shared() for _ in range(3)], [Client() for _ in range(3)]
        for source, client in zip(sources, clients, strict=True):
            await begin(source, client)
        for source in sources:
            source.put(b"change")
        await asyncio.sleep(0)
        first, *others = [client.got[0] for client in clients]
        assert first == b"6\r\nchange\r\n"
        assert all(other is first for other in others)

    run(scene)


def test_the_loop_looks_at_its_sockets_before_all_streams_are_served(monkeypatch):
    monkeypatch.setattr("dralab.apiserver.http.connections.stream_turns.SLICE", -1.0)

    async def scene(begin):
        sources, clients = [Feed() for _ in range(3)], [Client() for _ in range(3)]
        for source, client in zip(sources, clients, strict=True):
            await begin(source, client)
        for source in sources:
            source.put(b"x")
        for served in (1, 2, 3):
            await asyncio.sleep(0)
            assert sum(len(client.got) for client in clients) == served

    run(scene, timers=True)


def test_a_source_that_fails_ends_its_own_stream_alone():
    class Broken(Feed):
        def take_items(self):
            raise ValueError("broken")

    async def scene(begin):
        broken, whole, client = Broken(), Feed(), Client()
        task = await begin(broken, Client())
        await begin(whole, client)
        broken.put(b"x")
        whole.put(b"x")
        with pytest.raises(ValueError, match="broken"):
            await task
        assert client.got == [b"1\r\nx\r\n"]

    run(scene)
