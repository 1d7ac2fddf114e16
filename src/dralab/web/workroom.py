"""The thread in which the page's questions are answered, with a limit on those that wait."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpResponse
from dralab.apiserver.http.trying import refusal

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 16


class Workroom:
    """One thread for all questions: they share the objects, and use at most one core."""

    def __init__(self) -> None:
        self._waiting = 0
        self._closed = False
        self._thread: ThreadPoolExecutor | None = None

    async def answer(self, ask: Callable[[], HttpResponse]) -> HttpResponse:
        """Return an answer once the thread has it; 429 where too many wait, 500 for a defect."""
        if self._waiting >= MOST_WAITING:
            text = "too many questions wait for an answer; try again later"
            return refusal(ApiError("TooManyRequests", text, details={"retryAfterSeconds": 2}))
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
        except asyncio.CancelledError:
            if not self._closed:
                raise  # the client is gone
            return refusal(ApiError("ServiceUnavailable", "the server is stopping"))
        except Exception:
            logger.exception("a question of the page failed")
            return refusal(ApiError("InternalError", "Internal Server Error", code=500))
        finally:
            self._waiting -= 1

    def later(self, work: Callable[[], None]) -> None:
        """Run something in the thread once it is free, if there was any question."""
        if self._thread is not None and not self._closed:
            self._thread.submit(work)

    def close(self) -> None:
        """Answer nothing more; what the thread works on is not waited for."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = None
