"""A network between a test's processes and their server that delays and cuts."""

import asyncio
import random
import threading
from contextlib import suppress


class BadNetwork(threading.Thread):
    """A proxy that delays pieces by up to 50 ms, and cuts a connection after one of a hundred.

    Close it before what it leads to.
    """

    def __init__(self, host: str, port: int, seed: int = 3) -> None:
        super().__init__(daemon=True)
        self.target = host, port
        self.dice = random.Random(seed)
        self.cuts = self.pieces = self.port = 0
        self.ready, self.over = threading.Event(), asyncio.Event()
        self.loop = asyncio.new_event_loop()

    def begin(self) -> int:
        """Start it; return the port on which it listens."""
        self.start()
        assert self.ready.wait(60)
        return self.port

    def run(self) -> None:
        """Serve until it is closed."""
        self.loop.run_until_complete(self._serve())

    def close(self) -> None:
        """End it, with all connections."""
        self.loop.call_soon_threadsafe(self.over.set)
        self.join()
        self.loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await self.over.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # transports close in later turns

    async def _connected(self, reader, writer) -> None:
        down = None
        try:
            upstream, down = await asyncio.open_connection(*self.target)
            pumps = [self._pump(reader, down), self._pump(upstream, writer)]
            tasks = [asyncio.ensure_future(each) for each in pumps]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, down):
                if each is not None:
                    each.transport.abort()

    async def _pump(self, reader, writer) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                self.pieces += 1
                await asyncio.sleep(self.dice.random() * 0.05)
                if self.dice.random() < 0.01:
                    self.cuts += 1
                    # Some of it arrives: the writer does not know whether it did.
                    writer.write(piece[: len(piece) // 2] if self.dice.random() < 0.5 else piece)
                    return
                writer.write(piece)
                await writer.drain()
