"""What the checker says of messages, given what receivers have read of them."""

from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.webhooks import Message, MessageState
from queue_operator.backends.webhooks import Told as Settled
from queue_operator.domain.job import Job
from queue_operator.testing.history import History, Kind, Log, Rule, check, read_store


class Told:
    """A store, a job that ended in it, and receivers that write what they are said to have read."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.backend = MemoryBackend(clock=self._tick)
        self.log = Log("receivers", clock=lambda: self._tick().timestamp())
        self.log.write(Kind.RECEIVER_OPENED)

    def _tick(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    async def end(self) -> Message:
        """Of a job; its message is claimed."""
        job = Job(id="a", type="t", callback_url="https://receiver.example/hook")
        await self.backend.enqueue_job(job)
        await self.backend.cancel_jobs([], [job.id])
        [message] = await self.backend.webhooks.claim("s", limit=1, per_receiver=1, lease_s=60.0)
        return message

    async def settle(self, message: Message, state: MessageState) -> None:
        status = 204 if state is MessageState.DELIVERED else 500
        settled = Settled(id=message.id, claim=message.claim, state=state, status=status)
        await self.backend.webhooks.settle([settled])

    def read(self, message_id: str, *, accepted: bool, job_id: str = "a") -> None:
        self.log.write(Kind.MESSAGE_READ, job_id, id=message_id, accepted=accepted)

    async def wrong(self, *, quiet: bool = True) -> list[str]:
        """What is told of messages; of nothing else anything may be."""
        jobs = await read_store(self.backend)
        found = check(History(self.log.records, jobs, quiet=quiet))
        return [one.text for one in found if one.rule is Rule.MESSAGE_READ]


@pytest.fixture
def told() -> Told:
    return Told()


async def test_what_was_read_and_delivered_is_right_however_often(told: Told) -> None:
    message = await told.end()
    told.read(message.id, accepted=False)
    told.read(message.id, accepted=True)
    told.read(message.id, accepted=True)
    await told.settle(message, MessageState.DELIVERED)
    assert await told.wrong() == []


async def test_what_nobody_has_read_is_wrong_once_all_have_had_their_time(told: Told) -> None:
    message = await told.end()
    assert await told.wrong(quiet=False) == []
    [text] = await told.wrong()
    assert text == f"its message {message.id} is PENDING after 0 tries, and no receiver has read it"


async def test_what_nobody_accepted_is_not_delivered(told: Told) -> None:
    message = await told.end()
    told.read(message.id, accepted=False)
    await told.settle(message, MessageState.DELIVERED)
    [text] = await told.wrong(quiet=False)
    assert text.endswith("and no receiver accepted it")


@pytest.mark.parametrize("state", [MessageState.PENDING, MessageState.FAILED])
async def test_what_somebody_accepted_is_delivered_in_the_end(
    told: Told, state: MessageState
) -> None:
    message = await told.end()
    told.read(message.id, accepted=True)
    await told.settle(message, state)
    assert await told.wrong(quiet=False) == []
    [text] = await told.wrong()
    assert text.endswith("although a receiver accepted it")


@pytest.mark.parametrize("state", [MessageState.PENDING, MessageState.FAILED])
async def test_what_nobody_accepts_was_at_least_read(told: Told, state: MessageState) -> None:
    message = await told.end()
    told.read(message.id, accepted=False)
    await told.settle(message, state)
    assert await told.wrong() == []


async def test_what_is_read_is_stored_under_its_id_and_of_its_job(told: Told) -> None:
    message = await told.end()
    told.read(message.id, accepted=True)
    await told.settle(message, MessageState.DELIVERED)
    told.read("msg_other", accepted=True)
    told.read(message.id, accepted=True, job_id="b")
    assert len(await told.wrong(quiet=False)) == 2


async def test_without_receivers_that_say_so_nothing_is_asked(told: Told) -> None:
    told.log.records.clear()
    await told.end()
    assert await told.wrong() == []
