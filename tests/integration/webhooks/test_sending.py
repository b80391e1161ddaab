"""A real sender tells real receivers of jobs that ended in a real store."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.conftest import migrated_database
from tests.integration.webhooks.scene import BAD, GOOD, Scene, ended_at_last, scene
from tests.waiting import until

ENDS: Final = 1000
KILLS: Final = 3
"""More of both, and of everything else, is in `tests/chaos/test_told.py`."""
GOOD_S: Final = 10.0
"""A third of the time for which a receiver that never answers holds up what waits for it."""


@pytest.fixture(scope="module")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "webhooks") as address:
        yield address


async def told_all(world: Scene, job_ids: set[str]) -> None:
    async def is_so() -> bool:
        missing = job_ids - {told.job_id for told in world.told()}
        if missing:
            await world.store.ping()
        return not missing

    await until(is_so)


async def test_each_end_is_told_whatever_is_killed_and_repeats_have_the_same_id(
    dsn: str, tmp_path: Path
) -> None:
    async with scene(dsn, tmp_path, total_s=0.5) as world:
        part, begun = ENDS // (KILLS + 1), set[str]()
        for kill in range(KILLS + 1):
            sender = world.start_sender()
            with ended_at_last(sender):
                urls = [world.url(number) for number in range(part)]
                begun |= set(await world.end(urls))
                if kill == 1:
                    world.cut_off()
                # Some of what has just ended, so that it is killed in the middle of its work.
                await told_some(world, set(list(begun)[-part // 2 :]))
        sender = world.start_sender()
        with ended_at_last(sender):
            await told_all(world, begun)
        messages = await world.messages()
        ids = {message.job_id: message.id for message in messages}
        assert len(messages) == len(begun) == part * (KILLS + 1)
        assert ids.keys() == begun
        told = world.told()
        assert {(one.job_id, one.id) for one in told} == set(ids.items())
        assert len(set(ids.values())) == len(begun)
        print(f"{len(told)} requests for {len(begun)} ends")


async def told_some(world: Scene, job_ids: set[str]) -> None:
    async def is_so() -> bool:
        await world.store.ping()
        return bool(job_ids & {told.job_id for told in world.told()})

    await until(is_so)


async def test_receivers_that_answer_do_not_wait_for_those_that_do_not(
    dsn: str, tmp_path: Path
) -> None:
    """All others have more to be told than there are places."""
    async with scene(dsn, tmp_path, total_s=3 * GOOD_S) as world:
        many = 40
        bad = [world.bad(BAD[n % len(BAD)], n) for n in range(many) for _ in range(10)]
        await world.end(bad)
        with ended_at_last(world.start_sender()):

            async def has_begun() -> bool:
                await world.store.ping()
                return len({told.host for told in world.told()}) > many // 2

            await until(has_begun)
            good = [world.good(n % GOOD) for n in range(4 * GOOD)]
            first = set(await world.end(good))
            await told_all(world, first)
            late = world.late_s()
            slowest = max(max(times) for host, times in late.items() if ".127.0.1." in f".{host}")
            print(f"the slowest good one: {slowest:.2f} s")
            assert slowest < GOOD_S


async def test_a_receiver_is_told_once(dsn: str, tmp_path: Path) -> None:
    async with scene(dsn, tmp_path, total_s=5.0) as world:
        with ended_at_last(world.start_sender()) as sender:
            ended = set(await world.end([world.good(n % 3) for n in range(30)]))
            await told_all(world, ended)
            sender.terminate()
            assert sender.wait() == 0
        times = Counter(told.id for told in world.told())
        assert set(times.values()) == {1}
        assert {message.state for message in await world.messages()} == {"DELIVERED"}
        assert "Traceback" not in (tmp_path / "sender.log").read_text()
