"""The sender on a store in memory, with receivers that answer as the test says."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import pytest
from tests.waiting import DEADLINE_S, until

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.webhooks import Message, MessageSearch, MessageState
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import InvalidArgument, Unavailable
from queue_operator.domain.job import Job
from queue_operator.queue.clock import SystemClock
from queue_operator.settings import WebhookSettings
from queue_operator.webhooks import runner
from queue_operator.webhooks.figures import Figures
from queue_operator.webhooks.runner import Courier, Sender, Sign

HOST: Final = "https://hooks.example"


async def a_turn() -> None:
    """For all others."""
    await asyncio.to_thread(os.sched_yield)


@dataclass(frozen=True)
class Answered:
    status: int | None = 204
    error: str = ""
    retry_after_s: float | None = None
    refused: bool = False


@dataclass
class Receiver:
    """Notes what it is told; holds its answers back while `open` is not set."""

    answer: Answered | Exception = field(default_factory=Answered)
    told: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: int = 0
    most_at_once: int = 0

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answered:
        answer = self.answer
        self.told.append((url, headers, body))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await a_turn()
            await self.open.wait()
        finally:
            self.at_once -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer


class Store(MemoryBackend):
    """May be away."""

    away = False

    async def named_jobs(self, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        if self.away:
            raise Unavailable("the store is away")
        return await super().named_jobs(names)


@dataclass
class World:
    store: Store
    receiver: Receiver
    figures: Figures
    stop: asyncio.Event
    running: asyncio.Task[None]

    async def end(self, count: int, path: str = "/done") -> list[str]:
        """So many jobs with a callback URL complete."""
        ids = [f"{path.strip('/')}-{number}" for number in range(count)]
        jobs = [Job(id=id, type="t", payload=b"", callback_url=f"{HOST}{path}") for id in ids]
        await self.store.enqueue_jobs(jobs)
        for job in await self.store.dequeue_jobs("w", [], count):
            await self.store.complete_job(job.id, b"", token=job.token)
        return ids

    async def messages(self) -> Sequence[Message]:
        return (await self.store.webhooks.search(MessageSearch(limit=1000))).messages

    async def until_all(self, state: MessageState, tries: int) -> None:
        async def are_so() -> bool:
            await a_turn()
            return {(one.state, one.tries) for one in await self.messages()} == {(state, tries)}

        await until(are_so)

    async def until_told(self, count: int) -> None:
        async def are_told() -> bool:
            await a_turn()
            return len(self.receiver.told) >= count

        await until(are_told)


def rendered(job: Job, now: datetime) -> bytes:
    assert now.tzinfo is not None
    if job.id.startswith("odd"):
        raise ValueError(job.id)
    return json.dumps({"job_id": job.id}).encode()


def signed(message: Message, at: datetime, body: bytes) -> Mapping[str, str]:
    assert abs((datetime.now(UTC) - at).total_seconds()) < DEADLINE_S
    return {"webhook-id": message.id}


@asynccontextmanager
async def sending(
    clock: Clock | None = None,
    *,
    store: Store | None = None,
    sign: Sign = signed,
    **settings: object,
) -> AsyncIterator[World]:
    store, receiver, figures = store or Store(), Receiver(), Figures()
    receiver.open.set()
    courier = Courier(
        outbox=store.webhooks,
        jobs=store,
        poster=receiver,
        sign=sign,
        render=rendered,
        clock=clock or SystemClock(),
        rng=lambda: 0.0,
        holder="me",
        figures=figures,
    )
    stop = asyncio.Event()
    given = WebhookSettings.model_validate(settings)
    running = asyncio.create_task(Sender(given, courier).run(stop))
    try:
        yield World(store, receiver, figures, stop, running)
    finally:
        await end_tasks([running])
        await store.close()


async def test_each_end_is_told_once_and_written_down() -> None:
    async with sending() as world:
        ids = await world.end(30)
        await world.until_all(MessageState.DELIVERED, 1)
        told = [json.loads(body) for _, _, body in world.receiver.told]
        assert sorted(one["data"]["job_id"] for one in told) == sorted(ids)
        messages = {one.id: one.job_id for one in await world.messages()}
        assert {one["id"]: one["data"]["job_id"] for one in told} == messages
        assert {headers["webhook-id"] for _, headers, _ in world.receiver.told} == set(messages)
        assert world.figures.by_outcome()["delivered"] == 30
        assert sum(world.figures.seconds) == 30


async def test_one_receiver_has_no_more_at_a_time_than_it_may() -> None:
    async with sending(per_receiver=3) as world:
        await world.end(40)
        await world.until_all(MessageState.DELIVERED, 1)
        assert world.receiver.most_at_once == 3


async def test_of_a_job_that_was_deleted_what_is_known_is_told() -> None:
    store = Store()
    async with sending(store=store) as world:
        world.receiver.open.clear()
        [first, *_] = await world.end(1)
        await world.until_told(1)
        await world.end(1, "/later")
        await store.delete_jobs([], [first, "later-0"])
        world.receiver.open.set()
        await world.until_all(MessageState.DELIVERED, 1)
        bodies = [json.loads(body)["data"] for _, _, body in world.receiver.told]
        assert bodies[0] == {"job_id": first}
        assert (bodies[1]["job_id"], bodies[1]["truncated"]) == ("later-0", True)


@pytest.mark.parametrize(
    ("answer", "state", "outcome"),
    [
        (Answered(500), MessageState.PENDING, "retried"),
        (Answered(410), MessageState.FAILED, "failed"),
        (Answered(None, "it is inside", refused=True), MessageState.FAILED, "refused"),
    ],
)
async def test_what_came_of_a_try_is_written(
    answer: Answered, state: MessageState, outcome: str
) -> None:
    async with sending() as world:
        world.receiver.answer = answer
        await world.end(3)
        await world.until_all(state, 1)
        assert world.figures.by_outcome()[outcome] == 3
        assert {one.last_status for one in await world.messages()} == {answer.status}
        assert all(one.last_error for one in await world.messages())


async def test_a_job_that_cannot_be_shown_is_told_of_in_short_and_keeps_nobody_up() -> None:
    async with sending() as world:
        await world.end(1, "/odd")
        await world.end(1)
        await world.until_all(MessageState.DELIVERED, 1)
        bodies = [json.loads(body)["data"] for _, _, body in world.receiver.told]
        found = {one["job_id"]: one.get("truncated", False) for one in bodies}
        assert found == {"odd-0": True, "done-0": False}


async def test_a_fault_of_ours_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with sending() as world:
        world.receiver.answer = RuntimeError("a fault")
        await world.end(1)
        # It is tried again when its time has come, not at once and for ever.
        await world.until_all(MessageState.PENDING, 1)
        world.receiver.answer = Answered()
        await world.end(1, "/later")
        await world.until_told(2)
        [later, first] = await world.messages()
        assert first.last_error == "the sender failed; its log says why"
        assert first.next_at is not None
        assert first.last_at is not None
        assert (first.next_at - first.last_at).total_seconds() > 1
        assert later.job_id == "later-0"
    assert "a message could not be sent" in caplog.text


async def test_what_cannot_be_signed_is_not_sent_and_is_tried_again() -> None:
    def unsigned(*_: object) -> Mapping[str, str]:
        raise InvalidArgument("webhooks.secrets_dir", "the file has none")

    async with sending(sign=unsigned) as world:
        await world.end(1)
        await world.until_all(MessageState.PENDING, 1)
        [message] = await world.messages()
        assert world.receiver.told == []
    assert message.last_error == "it cannot be signed: webhooks.secrets_dir: the file has none"


async def test_a_fault_in_what_is_written_down_ends_the_sender_and_another_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    store = Store()
    monkeypatch.setattr(store.webhooks, "settle", broken)
    async with sending(store=store) as world:
        await world.end(1)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ExceptionGroup):
                await world.running


async def test_what_has_not_ended_in_time_is_given_back_when_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "GRACE_S", 0.05)
    async with sending() as world:
        world.receiver.open.clear()
        await world.end(5)
        await world.until_told(1)
        world.stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await world.running
        assert {one.tries for one in await world.messages()} == {0}
        # Nobody holds any: another sender may have them at once.
        again = await world.store.webhooks.claim("you", limit=9, per_receiver=9, lease_s=60)
        assert len(again) == 5


async def test_a_try_that_ends_in_time_counts_although_it_stops() -> None:
    async with sending() as world:
        world.receiver.open.clear()
        await world.end(1)
        await world.until_told(1)
        world.stop.set()
        world.receiver.open.set()
        async with asyncio.timeout(DEADLINE_S):
            await world.running
        assert [(one.state, one.tries) for one in await world.messages()] == [
            (MessageState.DELIVERED, 1)
        ]


async def test_while_the_store_is_away_nothing_is_sent_and_then_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.away = True
    async with sending(store=store, total_s=100) as world:
        await world.end(2)

        async def is_said() -> bool:
            await a_turn()
            return "the outbox cannot be read" in caplog.text

        await until(is_said)
        assert world.receiver.told == []
        store.away = False
        # What was claimed by then is not lost until its lease runs out.
        await world.until_all(MessageState.DELIVERED, 1)
