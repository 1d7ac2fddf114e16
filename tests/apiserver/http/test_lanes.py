"""Requests that wait for a thread take turns."""

import asyncio
import threading
import time

import pytest

from dralab.apiserver.access.fairness.flow_control import Flow
from dralab.apiserver.access.fairness.queues import PriorityLevel, QueueFull
from dralab.apiserver.cpu_use import CpuUse
from dralab.apiserver.http.connections.lanes import Lane
from dralab.apiserver.http.messages import HttpRequest

LEVEL = PriorityLevel("level", per_flow=4)


def asked(user: str, program: str = "load") -> HttpRequest:
    return HttpRequest(method="PUT", path=f"/{user}", headers={"user-agent": program})


def flow_of(request: HttpRequest) -> Flow:
    return Flow(LEVEL, request.path)


def finish(_: HttpRequest, future: asyncio.Future[str], answered: str) -> None:
    if not future.done():
        future.set_result(answered)


def lane_that_waits(
    order: list[str], go_on: threading.Event, use: CpuUse | None = None
) -> Lane[str]:
    def answer(request: HttpRequest) -> str:
        assert go_on.wait(150)
        order.append(request.path[1:])
        return request.path

    return Lane("test", 1, flow_of, answer, finish, use=use)


def submitted(lane: Lane[str], request: HttpRequest) -> asyncio.Future[str]:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    lane.submit(request, future)
    return future


def test_large_requests_of_one_client_do_not_keep_others_waiting():
    async def main() -> list[str]:
        order: list[str] = []
        go_on = threading.Event()
        lane = lane_that_waits(order, go_on)
        answers = [submitted(lane, asked("greedy")) for _ in range(5)]
        answers.append(submitted(lane, asked("jane")))
        go_on.set()
        found = await asyncio.gather(*answers)
        assert found == [*["/greedy"] * 5, "/jane"]
        lane.close()
        return order

    # What has been answered for the greedy one counts.
    assert asyncio.run(main()).index("jane") == 1


def test_who_has_used_most_cpu_time_waits_longest():
    async def main() -> list[str]:
        order: list[str] = []
        go_on = threading.Event()
        use = CpuUse()
        lane = lane_that_waits(order, go_on, use)
        answers = [submitted(lane, asked("first"))]
        for user, seconds in (("heavy", 1.5), ("medium", 0.5), ("light", 0.01)):
            use.charge((LEVEL.name, f"/{user}"), seconds)
            answers.append(submitted(lane, asked(user)))
        go_on.set()
        await asyncio.gather(*answers)
        lane.close()
        return order

    assert asyncio.run(main()) == ["first", "light", "medium", "heavy"]


def test_the_cpu_time_of_an_answer_is_charged_to_who_asked():
    def work(request: HttpRequest) -> str:
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return request.path

    async def main() -> tuple[float, float]:
        use = CpuUse()
        lane = Lane("test", 1, flow_of, work, finish, use=use)
        await submitted(lane, asked("jane"))
        lane.close()
        return use.of((LEVEL.name, "/jane")), use.of((LEVEL.name, "/joe"))

    used, other = asyncio.run(main())
    assert used >= 0.01
    assert other == 0


def test_a_flow_that_has_too_many_waiting_is_told_so():
    async def main() -> None:
        go_on = threading.Event()
        lane = lane_that_waits([], go_on)
        answers = [submitted(lane, asked("greedy")) for _ in range(5)]
        with pytest.raises(QueueFull):
            submitted(lane, asked("greedy"))
        answers[2].cancel()  # its client is gone
        go_on.set()
        await asyncio.gather(*answers, return_exceptions=True)
        assert await submitted(lane, asked("jane")) == "/jane"
        lane.close()

    asyncio.run(main())


def test_what_waits_when_a_lane_is_closed_is_cancelled():
    async def main() -> None:
        go_on = threading.Event()
        lane = lane_that_waits([], go_on)
        answers = [submitted(lane, asked("jane")) for _ in range(2)]
        lane.close()
        go_on.set()
        found = await asyncio.gather(*answers, return_exceptions=True)
        assert found[0] == "/jane"
        assert isinstance(found[1], asyncio.CancelledError)

    asyncio.run(main())


def test_what_a_thread_fails_with_is_told():
    def answer(request: HttpRequest) -> str:
        raise ValueError(request.path)

    async def main() -> None:
        lane = Lane("test", 2, flow_of, answer, pytest.fail)
        found = await asyncio.gather(
            *(submitted(lane, asked(user)) for user in ("jane", "joe")), return_exceptions=True
        )
        assert [str(each) for each in found] == ["/jane", "/joe"]
        lane.close()

    asyncio.run(main())


def test_users_whose_requests_wait_leave_threads_for_others():
    async def main() -> tuple[list[str], int]:
        begun: list[str] = []
        all_begun, go_on = threading.Semaphore(0), threading.Event()

        def answer(request: HttpRequest) -> str:
            begun.append(request.path[1:])
            all_begun.release()
            assert go_on.wait(150)
            return request.path

        lane = Lane("test", 8, flow_of, answer, finish, leave_room=True)
        users = [*["greedy"] * 8, *["slow"] * 5, "jane"]
        answers = [submitted(lane, asked(user)) for user in users]
        for _ in range(7):
            await asyncio.to_thread(all_begun.acquire)
        while_they_wait = sorted(begun)
        go_on.set()
        await asyncio.gather(*answers)
        lane.close()
        return while_they_wait, len(begun)

    assert asyncio.run(main()) == ([*["greedy"] * 4, "jane", *["slow"] * 2], 14)


def test_threads_that_one_user_leaves_go_to_another_who_waits_for_more():
    async def main() -> list[int]:
        go_on = {user: threading.Semaphore(0) for user in ("/greedy", "/slow")}
        begun = threading.Semaphore(0)
        running: list[str] = []

        def answer(request: HttpRequest) -> str:
            running.append(request.path)
            begun.release()
            assert go_on[request.path].acquire(timeout=150)
            running.remove(request.path)
            return request.path

        lane = Lane("test", 8, flow_of, answer, finish, leave_room=True)
        greedy = [submitted(lane, asked("greedy")) for _ in range(4)]
        slow = [submitted(lane, asked("slow")) for _ in range(6)]
        for _ in range(6):
            await asyncio.to_thread(begun.acquire)
        found = [running.count("/slow")]
        go_on["/greedy"].release(4)
        await asyncio.gather(*greedy)
        for _ in range(2):
            await asyncio.to_thread(begun.acquire)
        found.append(running.count("/slow"))
        go_on["/slow"].release(6)
        await asyncio.gather(*slow)
        lane.close()
        return found

    assert asyncio.run(main()) == [2, 4]


def test_users_who_have_taken_all_threads_between_them_do_not_keep_another_out():
    async def main() -> tuple[list[str], list[str]]:
        begun: list[str] = []
        all_begun, go_on = threading.Semaphore(0), threading.Event()

        def answer(request: HttpRequest) -> str:
            begun.append(request.path[1:])
            all_begun.release()
            assert go_on.wait(150)
            return request.path

        lane = Lane("test", 8, flow_of, answer, finish, leave_room=True)
        users = [user for user in "abcd" for _ in range(5)]  # 4, 2, 1 and 1 threads
        answers = [submitted(lane, asked(user)) for user in [*users, "jane", "jane", "joe"]]
        for _ in range(10):
            await asyncio.to_thread(all_begun.acquire)
        while_they_wait = sorted(begun)
        go_on.set()
        await asyncio.gather(*answers)
        lane.close()
        return while_they_wait, begun

    while_they_wait, begun = asyncio.run(main())
    assert while_they_wait == [*"aaaabbcd", "jane", "joe"]
    assert len(begun) == 23
