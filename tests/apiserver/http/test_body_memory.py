"""Room for large bodies: bounded, and shared by turns."""

import asyncio

from dralab.apiserver.http.connections.body_memory import BodyMemory


def order(memory: BodyMemory, wanted: list[tuple[str, str, int]]) -> list[str]:
    """Return who gets room, in order; each gives it back when all that can have it do."""

    async def main() -> list[str]:
        got: list[str] = []

        async def take(user: str, program: str, size: int) -> None:
            await memory.take(user, program, size)
            got.append(f"{user}/{program}")

        tasks = [asyncio.create_task(take(*one)) for one in wanted]
        rounds = 0
        given = 0
        while given < len(wanted):
            await asyncio.sleep(0)
            rounds += 1
            assert rounds < 1_000
            if given < len(got):
                user = got[given].partition("/")[0]
                memory.give_back(user, wanted[0][2])
                given += 1
        await asyncio.gather(*tasks)
        return got

    return asyncio.run(main())


def test_users_take_turns():
    greedy = [("greedy", "load", 50)] * 6
    found = order(BodyMemory(100), [*greedy, ("jane", "kubectl", 50)])
    assert found.index("jane/kubectl") < 2
    assert len(found) == 7


def test_programs_of_one_user_take_turns():
    greedy = [("admin", "load", 60)] * 6
    found = order(BodyMemory(100), [*greedy, ("admin", "kubectl", 60)])
    assert found.index("admin/kubectl") == 2  # behind the one that had room, and the first to wait


def test_one_user_has_half_of_the_room_and_everybody_one_body():
    async def main() -> None:
        memory = BodyMemory(100)
        await memory.take("a", "", 30)
        await memory.take("a", "", 20)
        more = asyncio.create_task(memory.take("a", "", 1))
        await memory.take("b", "", 50)
        await memory.take("c", "", 90)
        await asyncio.sleep(0)
        assert not more.done()
        assert memory.used == 190
        more.cancel()
        await asyncio.gather(more, return_exceptions=True)
        for user, size in (("a", 30), ("a", 20), ("b", 50), ("c", 90)):
            memory.give_back(user, size)
        assert memory.used == 0

    asyncio.run(main())


def test_two_users_leave_room_for_a_third():
    async def main() -> None:
        memory = BodyMemory(100)
        greedy = [asyncio.create_task(memory.take(user, "", 10)) for user in "aaaaaabbbbbb"]
        await asyncio.sleep(0)
        assert [task.done() for task in greedy].count(True) == 7
        assert memory.used == 70  # 50 of a, and 20 of b, which leaves 30
        await memory.take("c", "", 10)
        await memory.take("d", "", 10)
        assert memory.used == 90
        for task in greedy:
            task.cancel()

    asyncio.run(main())


def test_who_gives_up_at_the_moment_of_room_does_not_keep_it():
    async def main() -> None:
        memory = BodyMemory(100)
        await memory.take("a", "", 50)
        late = asyncio.create_task(memory.take("a", "", 50))
        await asyncio.sleep(0)
        memory.give_back("a", 50)  # it has room now, and does not know yet
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert memory.used == 0

    asyncio.run(main())


def test_who_gives_up_in_the_turn_in_which_there_is_room_leaves_it_to_others():
    async def main() -> None:
        memory = BodyMemory(100)
        await memory.take("a", "", 50)
        late = asyncio.create_task(memory.take("a", "", 50))
        other = asyncio.create_task(memory.take("a", "other", 50))
        await asyncio.sleep(0)
        late.cancel()
        memory.give_back("a", 50)
        await asyncio.gather(late, return_exceptions=True)
        await other
        assert memory.used == 50

    asyncio.run(main())
