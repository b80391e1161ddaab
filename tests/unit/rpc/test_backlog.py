"""What may wait for the store, of all sessions together."""

import asyncio

from queue_operator.rpc.backlog import Backlog


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_who_is_over_the_limit_waits_in_order() -> None:
    backlog = Backlog(10)
    await backlog.add(6, alone=False)
    passed: list[str] = []

    async def add(name: str, size: int) -> None:
        await backlog.add(size, alone=False)
        passed.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(add("large", 8))
        await turns()
        # There would be room for this one, but it came later.
        group.create_task(add("small", 2))
        await turns()
        assert passed == []
        backlog.remove(6)
        await turns()
        assert passed == ["large", "small"]


async def test_what_is_larger_than_all_there_is_passes_alone() -> None:
    backlog = Backlog(10)
    await backlog.add(100, alone=False)
    second = asyncio.create_task(backlog.add(1, alone=False))
    await turns()
    assert not second.done()
    backlog.remove(100)
    await second


async def test_who_gives_up_waiting_takes_no_room() -> None:
    backlog = Backlog(10)
    await backlog.add(10, alone=False)
    gone, stays = (asyncio.create_task(backlog.add(10, alone=False)) for _ in range(2))
    await turns()
    gone.cancel()
    await asyncio.wait([gone])
    backlog.remove(10)
    await stays


async def test_who_gives_up_when_its_turn_has_come_passes_it_on() -> None:
    backlog = Backlog(10)
    await backlog.add(10, alone=False)
    gone, stays = (asyncio.create_task(backlog.add(10, alone=False)) for _ in range(2))
    await turns()
    backlog.remove(10)
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()
    await stays


async def test_who_has_nothing_else_there_waits_for_nobody() -> None:
    backlog = Backlog(10)
    await backlog.add(10, alone=False)
    heavy = asyncio.create_task(backlog.add(10, alone=False))
    await turns()
    await backlog.add(5, alone=True)
    backlog.remove(10)
    await turns()
    assert not heavy.done()
    backlog.remove(5)
    await heavy
