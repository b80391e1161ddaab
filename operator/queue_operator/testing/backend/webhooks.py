"""Webhooks: each end of a job that has a callback URL leaves one message, which is claimed, told,
told again, given up, sent anew and forgotten.
"""

from datetime import timedelta
from typing import Any, Final

import pytest

from queue_operator.backends.webhooks import (
    Message,
    MessageSearch,
    MessageState,
    Told,
    Webhooks,
    receiver_of,
)
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument, MessageNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.situation import MessagesNow
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import a_job, apply, claim, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store

_HOOK: Final = "https://receiver.example/hook"
_ENDS: Final = {
    JobState.COMPLETED: (Event.COMPLETE,),
    JobState.STOPPED: (Event.STOP,),
    JobState.DEAD_LETTER: (Event.EXHAUST,),
    JobState.UNKNOWN_STOPPED: (Event.CANCEL, Event.LOSE),
}


def _box(backend: Contract) -> Webhooks:
    box = getattr(backend, "webhooks", None)
    assert isinstance(box, Webhooks)
    return box


async def _claimed(backend: Contract, **given: Any) -> list[Message]:
    options = {"limit": 100, "per_receiver": 100, "lease_s": TTL_S, **given}
    return await _box(backend).claim("sender-1", **options)


async def _about(backend: Contract, job: Job) -> list[Message]:
    """The newest first."""
    search = MessageSearch(namespace=job.namespace, job_id=job.id)
    return list((await _box(backend).search(search)).messages)


async def _ended(backend: Contract, url: str = _HOOK, namespace: str = "default") -> Job:
    job = await submitted(backend, callback_url=url, namespace=namespace)
    await backend.cancel_jobs([], [job.id], namespace=namespace)
    return job


async def _settled(backend: Contract, messages: list[Message], **told: Any) -> None:
    ones = [Told(id=one.id, claim=one.claim, **told) for one in messages]
    await _box(backend).settle(ones)


async def _given_up(backend: Contract) -> list[Message]:
    await _settled(backend, await _claimed(backend), state=MessageState.FAILED, error="no")
    found = await _box(backend).search(MessageSearch(state=MessageState.FAILED))
    return list(found.messages)


@pytest.mark.parametrize("state", _ENDS)
async def test_an_end_leaves_one_message(backend: Contract, state: JobState) -> None:
    job, token = await running(backend, callback_url=_HOOK)
    for event in _ENDS[state]:
        assert await _about(backend, job) == []
        if event is Event.CANCEL:
            await backend.cancel_jobs([], [job.id])
        else:
            assert (await apply(backend, job, event, token)).error is None
    [message] = await _about(backend, job)
    stored = await backend.get_job(job.id)
    assert (message.job_id, message.namespace, message.type) == (job.id, "default", job.type)
    assert (message.url, message.job_state, message.attempt) == (_HOOK, state, 1)
    assert message.finalized_at == stored.finalized_at
    assert (message.state, message.tries, message.claim) == (MessageState.PENDING, 0, 0)
    assert (message.last_at, message.last_status, message.last_error) == (None, None, "")
    assert message.receiver == "default https://receiver.example:443"
    assert await _box(backend).get(message.id, namespace="default") == message


async def test_what_has_not_ended_or_asked_for_nothing_leaves_none(backend: Contract) -> None:
    job, token = await running(backend, callback_url=_HOOK, max_attempts=3)
    await apply(backend, job, Event.FAIL, token)
    await backend.cancel_jobs([], [(await submitted(backend)).id])
    assert await _claimed(backend) == []


async def test_jobs_that_are_never_run_leave_one_too(backend: Contract) -> None:
    parent = await submitted(backend)
    child = await submitted(backend, callback_url=_HOOK, depends_on=(parent.id,))
    assert (await apply(backend, parent, Event.STOP, (await claim(backend, parent)).token)).state
    # Submitted when nothing can come of it any more.
    late = await submitted(backend, callback_url=_HOOK, depends_on=(parent.id,))
    chained = a_job(
        callback_url=_HOOK, depends_on=(parent.id,), dependency_mode=DependencyMode.CHAIN
    )
    await backend.enqueue_job(chained)
    for job in (child, late, chained):
        [message] = await _about(backend, job)
        assert message.job_state is (await backend.get_job(job.id)).state
        assert message.attempt == 0


async def test_batches_tell_each_job_its_own(backend: Contract) -> None:
    jobs = [a_job(type="t", callback_url=_HOOK if n % 3 else "") for n in range(30)]
    jobs[0] = a_job(type="t", callback_url="http://other.example:8080/x")
    await backend.enqueue_jobs(jobs)
    for job in await backend.dequeue_jobs("w", [], 30, lease_ttl_s=TTL_S):
        await apply(backend, job, Event.COMPLETE, job.token)
    told = {message.job_id: message for message in await _claimed(backend)}
    assert set(told) == {job.id for job in jobs if job.callback_url}
    assert told[jobs[0].id].receiver == "default http://other.example:8080"
    assert len({message.id for message in told.values()}) == len(told)


async def test_another_end_is_another_message(backend: Contract, store: Store) -> None:
    job, token = await running(backend, callback_url=_HOOK)
    await backend.cancel_jobs([], [job.id])
    await apply(backend, job, Event.LOSE, token)
    await apply(backend, job, Event.COMPLETE, token)
    late, first = await _about(backend, job)
    assert (first.job_state, late.job_state) == (JobState.UNKNOWN_STOPPED, JobState.COMPLETED)
    assert first.id != late.id
    dead, token = await running(backend, callback_url=_HOOK)
    await apply(backend, dead, Event.EXHAUST, token)
    await apply(backend, dead, Event.RETRY_NOW)
    await apply(backend, dead, Event.COMPLETE, (await claim(backend, dead)).token)
    done, gone = await _about(backend, dead)
    assert (gone.job_state, done.job_state) == (JobState.DEAD_LETTER, JobState.COMPLETED)
    await backend.delete_jobs([], [job.id, dead.id])
    assert len(await _about(backend, job)) == len(await _about(backend, dead)) == 2
    assert await store.faults() == []


async def test_a_message_is_one_sender_s_until_it_dies(backend: Contract, store: Store) -> None:
    await _ended(backend)
    [first] = await _claimed(backend)
    assert first.claim == 1
    assert await _claimed(backend) == []
    await store.age(TTL_S + 1)
    [second] = await _claimed(backend)
    assert (second.id, second.claim, second.tries) == (first.id, 2, 0)
    await _settled(backend, [first], state=MessageState.FAILED, error="too late")
    assert (await _box(backend).get(first.id, namespace="default")).state is MessageState.PENDING
    await _settled(backend, [second], state=MessageState.DELIVERED, status=204)
    await _settled(backend, [second], state=MessageState.FAILED, error="a second word")
    told = await _box(backend).get(first.id, namespace="default")
    assert (told.state, told.tries, told.last_status) == (MessageState.DELIVERED, 1, 204)
    assert told.next_at is None
    assert told.last_at is not None
    await store.age(TTL_S + 1)
    assert await _claimed(backend) == []


async def test_a_message_is_told_again_at_its_time(backend: Contract, store: Store) -> None:
    await _ended(backend)
    [first] = await _claimed(backend)
    again = {"state": MessageState.PENDING, "after_s": 500, "status": 500, "error": "oh\x00no"}
    await _settled(backend, [first], **again)
    waits = await _box(backend).get(first.id, namespace="default")
    assert (waits.tries, waits.last_status) == (1, 500)
    # By the store's own clock, whatever that of the sender shows.
    assert waits.last_at is not None
    assert waits.next_at == waits.last_at + timedelta(seconds=500)
    assert waits.last_error == "ohno"
    await store.age(400)
    assert await _claimed(backend) == []
    await store.age(101)
    [second] = await _claimed(backend)
    assert (second.id, second.tries, second.claim) == (first.id, 1, 2)


async def test_what_is_given_back_was_no_try(backend: Contract) -> None:
    await _ended(backend)
    [first] = await _claimed(backend)
    await _settled(backend, [first], state=MessageState.PENDING)
    [second] = await _claimed(backend)
    assert (second.id, second.claim, second.tries) == (first.id, 2, 0)
    assert second.last_at is None


async def test_receivers_take_turns(backend: Contract) -> None:
    busy = [await _ended(backend, "https://busy.example/a") for _ in range(6)]
    few = [await _ended(backend, f"https://few-{n}.example/a") for n in range(4)]
    told: list[list[str]] = []
    for _ in range(3):
        told.append([one.job_id for one in await _claimed(backend, limit=3, per_receiver=2)])
    flat = [job_id for part in told for job_id in part]
    assert len(flat) == len(set(flat)) == 8
    assert {job.id for job in few} <= set(flat[:6])
    mine = [job_id for job_id in flat if job_id in {job.id for job in busy}]
    assert mine == [job.id for job in busy][:4]
    assert [one.job_id for one in await _claimed(backend)] == [job.id for job in busy][4:]


async def test_one_receiver_gets_no_more_than_it_may(backend: Contract) -> None:
    for n in range(5):
        await _ended(backend, f"https://one.example/{n}")
    other = await _ended(backend, "https://one.example/0", namespace="other")
    assert len(await _claimed(backend, per_receiver=2)) == 3
    full = [receiver_of("default", "https://ONE.example:443/")]
    assert await _claimed(backend, full=full) == []
    await _ended(backend, "https://one.example/9", namespace="other")
    [told] = await _claimed(backend, full=full, limit=1)
    assert (told.namespace, told.job_id) != ("other", other.id)
    assert len(await _claimed(backend)) == 3


async def test_a_search_goes_page_by_page(backend: Contract) -> None:
    jobs = [await _ended(backend) for _ in range(5)]
    await _ended(backend, namespace="other")
    await _settled(backend, (await _claimed(backend, limit=2)), state=MessageState.DELIVERED)
    found: list[str] = []
    search = MessageSearch(limit=2)
    for _ in range(3):
        page = await _box(backend).search(search)
        found += [message.job_id for message in page.messages]
        search = MessageSearch(limit=2, after=page.next_cursor)
    assert found == [job.id for job in reversed(jobs)]
    assert search.after == ""
    waiting = await _box(backend).search(MessageSearch(state=MessageState.PENDING))
    assert {message.state for message in waiting.messages} == {MessageState.PENDING}
    page = await _box(backend).search(MessageSearch(limit=1))
    with pytest.raises(InvalidArgument, match="after"):
        await _box(backend).search(MessageSearch(state=MessageState.FAILED, after=page.next_cursor))


async def test_what_was_given_up_is_sent_anew(backend: Contract) -> None:
    for _ in range(3):
        await _ended(backend)
    failed = await _given_up(backend)
    box = _box(backend)
    assert await box.redeliver("other", state=MessageState.FAILED) == 0
    assert await box.redeliver("default", ids=[failed[0].id, "msg_1_x", "unknown"]) == 1
    assert await box.redeliver("default", ids=[failed[0].id]) == 0
    [again] = await _claimed(backend)
    assert (again.id, again.tries, again.last_error) == (failed[0].id, 0, "")
    assert await box.redeliver("default", state=MessageState.FAILED, limit=1) == 1
    await _settled(backend, await _claimed(backend), state=MessageState.DELIVERED, status=200)
    assert await box.redeliver("default", state=MessageState.DELIVERED) == 1
    with pytest.raises(InvalidArgument, match="state"):
        await box.redeliver("default", state=MessageState.PENDING)


async def test_what_is_purged_is_never_told(backend: Contract, store: Store) -> None:
    for _ in range(3):
        await _ended(backend)
    [held] = await _claimed(backend, limit=1)
    box = _box(backend)
    assert await box.purge("default", ids=[held.id]) == 1
    await _settled(backend, [held], state=MessageState.PENDING)
    with pytest.raises(MessageNotFound):
        await box.get(held.id, namespace="default")
    assert await box.purge("default", state=MessageState.FAILED) == 0
    assert await box.purge("default", state=MessageState.PENDING, limit=1) == 1
    assert len(await _claimed(backend)) == 1
    assert await store.faults() == []


async def test_what_a_change_would_find_is_counted(backend: Contract) -> None:
    for _ in range(3):
        await _ended(backend)
    waiting, failed, delivered = await _claimed(backend)
    await _settled(backend, [failed], state=MessageState.FAILED, status=500)
    await _settled(backend, [delivered], state=MessageState.DELIVERED, status=200)
    box, ids = _box(backend), [waiting.id, failed.id, delivered.id, failed.id, "msg_1_x", "unknown"]
    assert await box.count("default", ids=ids) == 3
    assert await box.count("default", ids=ids, ended=True) == 2
    assert await box.count("default", ids=ids, state=MessageState.FAILED) == 1
    assert await box.count("default", ids=ids, limit=2) == 2
    assert await box.count("default", ids=["unknown"]) == 0
    assert await box.count("other", ids=ids) == 0
    for state, ended in ((MessageState.PENDING, 0), (MessageState.FAILED, 1)):
        assert await box.count("default", state=state) == 1
        assert await box.count("default", state=state, ended=True) == ended
    assert await box.purge("default", ids=ids) == 3


async def test_what_a_change_would_find_is_counted_to_a_limit(backend: Contract) -> None:
    for _ in range(3):
        await _ended(backend)
    assert await _box(backend).count("default", state=MessageState.PENDING, limit=2) == 2


async def test_the_stock_is_counted_by_namespace(backend: Contract, store: Store) -> None:
    assert (await _box(backend).stock()).oldest_due_s == 0
    for namespace in ("default", "default", "other"):
        await _ended(backend, namespace=namespace)
    await store.age(100)
    stock = await _box(backend).stock()
    assert stock.pending == {"default": 2, "other": 1}
    assert not stock.failed
    assert 100 <= stock.oldest_due_s < 150
    messages = await _claimed(backend)
    assert (await _box(backend).stock()).oldest_due_s == 0
    await _settled(backend, messages[:1], state=MessageState.DELIVERED, status=200)
    await _settled(backend, messages[1:], state=MessageState.FAILED, error="gone")
    stock = await _box(backend).stock()
    assert not stock.pending
    assert stock.failed == {"default": 1, "other": 1}
    await _box(backend).redeliver("other", state=MessageState.FAILED)
    stock = await _box(backend).stock()
    assert (stock.pending, stock.failed) == ({"other": 1}, {"default": 1})
    assert await store.faults() == []


async def test_old_messages_are_forgotten(backend: Contract, store: Store) -> None:
    for _ in range(4):
        await _ended(backend)
    messages = await _claimed(backend)
    await _settled(backend, messages[:2], state=MessageState.DELIVERED, status=200)
    await _settled(backend, messages[2:3], state=MessageState.FAILED, error="no")
    await store.age(100)
    box = _box(backend)
    assert await box.prune(delivered_s=200, failed_s=1000, limit=10) == 0
    assert await box.prune(delivered_s=50, failed_s=1000, limit=1) == 1
    assert await box.prune(delivered_s=50, failed_s=1000, limit=10) == 1
    assert await box.prune(delivered_s=0, failed_s=0, limit=10) == 1
    assert await box.prune(delivered_s=0, failed_s=0, limit=10) == 0
    [left] = (await box.search(MessageSearch())).messages
    assert left.id == messages[3].id
    assert await store.faults() == []


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("holder", lambda box: box.claim("", limit=1, per_receiver=1, lease_s=1.0)),
        ("limit", lambda box: box.claim("s", limit=0, per_receiver=1, lease_s=1.0)),
        ("per_receiver", lambda box: box.claim("s", limit=1, per_receiver=0, lease_s=1.0)),
        ("lease_s", lambda box: box.claim("s", limit=1, per_receiver=1, lease_s=0.0)),
        ("full", lambda box: box.claim("s", limit=1, per_receiver=1, lease_s=1.0, full="x")),
        ("told", lambda box: box.settle("x")),
        ("told[0]", lambda box: box.settle([1])),
        ("told[0].after_s", lambda box: box.settle([_told_after(-1)])),
        ("told[0].after_s", lambda box: box.settle([_told_after(float("nan"))])),
        ("told[0].after_s", lambda box: box.settle([_told_after(None)])),
        ("namespace", lambda box: box.search(MessageSearch(namespace=""))),
        ("limit", lambda box: box.search(MessageSearch(limit=1001))),
        ("after", lambda box: box.search(MessageSearch(after="x"))),
        ("ids", lambda box: box.redeliver("default")),
        ("ids", lambda box: box.purge("default")),
        ("ids", lambda box: box.count("default")),
        ("ended", lambda box: box.count("default", ids=["x"], ended=1)),
        ("namespace", lambda box: box.purge("", ids=["x"])),
        ("delivered_s", lambda box: box.prune(delivered_s=-1, failed_s=0, limit=1)),
    ],
)
async def test_a_wrong_argument_is_named(backend: Contract, field: str, call: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await call(_box(backend))
    assert refused.value.field == field


def _told_after(after_s: Any) -> Told:
    return Told(id="msg_1_x", claim=1, state=MessageState.PENDING, after_s=after_s, status=500)


@pytest.mark.parametrize("id", ["unknown", "msg_1_" + "0" * 32, "msg_" + "9" * 19 + "_" + "0" * 32])
async def test_an_unknown_message_is_not_found(backend: Contract, id: str) -> None:
    with pytest.raises(MessageNotFound):
        await _box(backend).get(id, namespace="default")


async def test_messages_of_others_are_not_shown(backend: Contract) -> None:
    job = await _ended(backend)
    [message] = await _about(backend, job)
    with pytest.raises(MessageNotFound):
        await _box(backend).get(message.id, namespace="other")
    assert await _box(backend).purge("other", ids=[message.id]) == 0


async def test_how_it_goes_is_told_of_a_namespace_and_a_type(backend: Contract) -> None:
    for _ in range(3):
        await _ended(backend)
    other = await submitted(backend, callback_url="http://other.example:8080/x", type="rare")
    await backend.cancel_jobs([], [other.id])
    await _ended(backend, namespace="elsewhere")
    messages = [one for one in await _claimed(backend) if one.namespace == "default"]
    assert await _box(backend).standing("nowhere") == MessagesNow()
    rare = [one for one in messages if one.job_id == other.id]
    mine = [one for one in messages if one.job_id != other.id]
    await _settled(backend, mine[:2], state=MessageState.PENDING, after_s=3600.0, error="away")
    await _settled(backend, mine[2:], state=MessageState.FAILED, error="away")
    await _settled(backend, rare, state=MessageState.FAILED, status=410, error="answered 410")
    found = await _box(backend).standing("default")
    assert (found.pending, found.retrying, found.given_up, found.given_up_lately) == (2, 2, 2, 2)
    assert (found.receiver, found.error) == ("https://receiver.example:443", "away")
    assert found.oldest_due_s == 0.0
    rarely = await _box(backend).standing("default", type="rare")
    assert (rarely.pending, rarely.given_up) == (0, 1)
    assert (rarely.receiver, rarely.error) == ("http://other.example:8080", "answered 410")


async def test_how_long_the_oldest_is_due_is_told(backend: Contract, store: Store) -> None:
    await _ended(backend)
    assert len(await _claimed(backend)) == 1
    assert (await _box(backend).standing("default")).oldest_due_s == 0.0
    # Whoever held it has died meanwhile.
    await store.age(TTL_S + 100)
    found = await _box(backend).standing("default")
    assert (found.pending, found.retrying) == (1, 0)
    assert 100 <= found.oldest_due_s < 150


async def test_how_it_goes_asks_for_a_namespace(backend: Contract) -> None:
    with pytest.raises(InvalidArgument, match="namespace"):
        await _box(backend).standing("")
