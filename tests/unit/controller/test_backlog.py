"""The coalescing of statuses, with the time given."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from queue_operator.backends.protocol import MirrorEntry
from queue_operator.controller.backlog import HELD, HOLD_S, PROGRESS_S, Backlog, Write
from queue_operator.crd.conditions import over_quota, refused
from queue_operator.domain.errors import InvalidArgument, QuotaExceeded
from queue_operator.domain.job import Progress, ResourceRef
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import JobState

START = 100.0


def entry(sequence: int, uid: str, transition: int, state: JobState) -> MirrorEntry:
    job = ShownJob(
        id=uid,
        namespace="ns",
        state=state,
        transition=transition,
        resource=ResourceRef("c", uid, f"name-{uid}"),
    )
    return MirrorEntry(sequence=sequence, job=job)


def suspension(sequence: int, minute: int, suspended: bool) -> MirrorEntry:
    """No transition: what changed is told by when it did."""
    told = entry(sequence, "u", 1, JobState.INITIAL_PENDING)
    at = datetime(2026, 1, 1, 12, minute, tzinfo=UTC)
    return replace(told, job=replace(told.job, suspended=suspended, suspension_at=at))


def taken(backlog: Backlog, now: float) -> list[tuple[str, int]]:
    found = []
    while write := backlog.take(now):
        found.append((write.uid, write.transition))
    return found


def test_a_job_that_succeeds_at_once_is_written_once() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 1, JobState.INITIAL_PENDING), START)
    backlog.offer(entry(2, "u", 2, JobState.RUNNING), START + 0.1)
    assert backlog.take(START + 0.1) is None
    backlog.offer(entry(3, "u", 3, JobState.COMPLETED), START + 0.2)
    write = backlog.take(START + 0.2)
    assert write is not None
    assert write.job is not None
    assert write.job.state is JobState.COMPLETED
    backlog.done(write)
    assert backlog.delivered() == {1, 2, 3}
    assert taken(backlog, START + 10) == []


def test_a_waiting_job_gets_its_acceptance_after_two_seconds() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 1, JobState.INITIAL_PENDING), START)
    assert backlog.next_due() == START + HOLD_S
    assert taken(backlog, START + HOLD_S - 0.01) == []
    assert taken(backlog, START + HOLD_S) == [("u", 1)]


def test_running_shows_two_seconds_after_it_began() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 1, JobState.INITIAL_PENDING), START)
    backlog.offer(entry(2, "u", 2, JobState.RUNNING), START + 1.5)
    assert taken(backlog, START + HOLD_S) == []
    assert taken(backlog, START + 1.5 + HOLD_S) == [("u", 2)]


def test_reading_the_feed_again_does_not_put_off() -> None:
    backlog = Backlog()
    for at in range(5):
        backlog.offer(entry(1, "u", 1, JobState.INITIAL_PENDING), START + at / 2)
    assert taken(backlog, START + HOLD_S) == [("u", 1)]


@pytest.mark.parametrize("state", sorted(set(JobState) - HELD))
def test_all_other_states_are_written_at_once(state: JobState) -> None:
    backlog = Backlog()
    assert backlog.offer(entry(1, "u", 1, state), START)
    assert taken(backlog, START) == [("u", 1)]


def test_finished_first() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "a", 2, JobState.FAILED_RETRY), START)
    backlog.offer(entry(2, "b", 3, JobState.COMPLETED), START + 1)
    backlog.offer(entry(3, "c", 3, JobState.DEAD_LETTER), START + 2)
    assert [uid for uid, _ in taken(backlog, START + 3)] == ["b", "c", "a"]


def test_one_resource_is_never_in_flight_twice() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 2, JobState.FAILED_RETRY), START)
    first = backlog.take(START)
    assert first is not None
    backlog.offer(entry(2, "u", 5, JobState.COMPLETED), START)
    assert backlog.take(START) is None
    backlog.done(first)
    assert taken(backlog, START) == [("u", 5)]


def test_a_suspension_is_written_although_the_transition_is_known() -> None:
    backlog = Backlog(hold_s=0.0)
    backlog.offer(entry(1, "u", 1, JobState.INITIAL_PENDING), START)
    first = backlog.take(START)
    assert first is not None
    # It comes while the one before it is under way, and after it has arrived.
    assert backlog.offer(suspension(2, 1, True), START)
    backlog.done(first)
    second = backlog.take(START)
    assert second is not None
    backlog.done(second)
    assert not backlog.offer(suspension(3, 1, True), START)
    assert backlog.offer(suspension(4, 2, False), START)
    third = backlog.take(START)
    assert third is not None
    backlog.done(third)
    shown = [(w.job.suspended, w.job.transition) for w in (first, second, third) if w.job]
    assert shown == [(False, 1), (True, 1), (False, 1)]
    assert backlog.delivered() == {1, 2, 3, 4}


def test_of_two_suspensions_the_newer_is_written() -> None:
    backlog = Backlog(hold_s=0.0)
    backlog.put(
        Write("ns", ResourceRef("c", "u", "name-u"), job=suspension(0, 2, False).job), START
    )
    assert not backlog.offer(suspension(1, 1, True), START)
    write = backlog.take(START)
    assert write is not None
    assert write.job is not None
    assert not write.job.suspended


def progress(sequence: int, percent: int) -> MirrorEntry:
    told = entry(sequence, "u", 2, JobState.RUNNING)
    at = datetime(2026, 1, 1, 12, 0, percent, tzinfo=UTC)
    return replace(told, job=replace(told.job, progress=Progress(percent, "", at)))


def written(backlog: Backlog, at: float) -> list[int | None]:
    """The progress that is written by then."""
    found: list[int | None] = []
    while write := backlog.take(at):
        assert write.job is not None
        found.append(write.job.progress.percent if write.job.progress else None)
        backlog.done(write)
    return found


def test_progress_alone_is_written_every_ten_seconds_the_newest_of_it() -> None:
    backlog = Backlog()
    backlog.offer(progress(1, 1), START)
    assert written(backlog, START + HOLD_S) == [1]
    now = START + HOLD_S
    for second in range(1, 10):
        assert backlog.offer(progress(1 + second, 1 + second), now + second)
    assert backlog.next_due() == now + 1 + PROGRESS_S
    assert written(backlog, now + PROGRESS_S) == []
    assert written(backlog, now + 1 + PROGRESS_S) == [10]
    assert backlog.delivered() == set(range(1, 11))


def test_progress_that_is_put_off_is_no_backlog_and_holds_nothing_up() -> None:
    backlog = Backlog()
    backlog.offer(progress(1, 1), START)
    assert written(backlog, START + HOLD_S) == [1]
    backlog.offer(progress(2, 2), START + 3)
    assert backlog.oldest_since() == START + 3 + PROGRESS_S
    backlog.offer(entry(3, "u", 3, JobState.COMPLETED), START + 4)
    assert backlog.oldest_since() == START + 4
    assert taken(backlog, START + 4) == [("u", 3)]


def test_a_failed_write_gives_way_to_a_newer_one() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 2, JobState.FAILED_RETRY), START)
    first = backlog.take(START)
    assert first is not None
    backlog.offer(entry(2, "u", 5, JobState.COMPLETED), START)
    backlog.failed(first, START + 4)
    assert taken(backlog, START + 3.9) == []
    second = backlog.take(START + 4)
    assert second is not None
    assert second.transition == 5
    backlog.done(second)
    assert backlog.delivered() == {1, 2}


def test_a_failed_write_is_tried_again_when_due() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 5, JobState.COMPLETED), START)
    first = backlog.take(START)
    assert first is not None
    backlog.failed(first, START + 4)
    assert backlog.next_due() == START + 4
    assert taken(backlog, START + 4) == [("u", 5)]


def test_what_was_written_is_not_written_again_before_the_feed_forgets_it() -> None:
    backlog = Backlog()
    seen = entry(1, "u", 5, JobState.COMPLETED)
    backlog.offer(seen, START)
    write = backlog.take(START)
    assert write is not None
    assert not backlog.offer(seen, START)
    backlog.done(write)
    assert not backlog.offer(seen, START)
    backlog.acknowledged(backlog.delivered())
    assert backlog.delivered() == frozenset()
    assert len(backlog) == 0


def test_a_change_that_was_shown_with_an_earlier_one_is_not_written_again() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 3, JobState.COMPLETED), START)
    write = backlog.take(START)
    assert write is not None
    backlog.done(write)
    backlog.acknowledged(backlog.delivered())
    assert not backlog.offer(entry(2, "u", 3, JobState.COMPLETED), START)
    assert backlog.delivered() == {2}


def test_a_late_change_after_the_acknowledgement_is_written() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 5, JobState.UNKNOWN_STOPPED), START)
    write = backlog.take(START)
    assert write is not None
    backlog.done(write)
    backlog.acknowledged(backlog.delivered())
    assert backlog.offer(entry(2, "u", 6, JobState.COMPLETED), START)
    assert taken(backlog, START) == [("u", 6)]


def test_older_news_changes_nothing() -> None:
    backlog = Backlog()
    backlog.offer(entry(2, "u", 5, JobState.COMPLETED), START)
    assert not backlog.offer(entry(1, "u", 4, JobState.RUNNING), START)
    assert taken(backlog, START) == [("u", 5)]


def test_a_refusal_needs_no_job() -> None:
    backlog = Backlog()
    status = refused(InvalidArgument("spec.timeout", "bad"), datetime(2026, 1, 1, tzinfo=UTC), 1)
    backlog.put(Write("ns", ResourceRef("c", "u", "n"), status=status), START)
    write = backlog.take(START)
    assert write is not None
    assert write.final
    backlog.done(write)
    assert backlog.delivered() == frozenset()


def test_of_statuses_without_a_job_the_last_counts() -> None:
    backlog = Backlog()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    resource = ResourceRef("c", "u", "n")
    later = refused(InvalidArgument("spec.timeout", "bad"), now, 1)
    backlog.put(
        Write("ns", resource, status=over_quota(QuotaExceeded("l", 1, 1, 1.0), now, 1)), START
    )
    backlog.put(Write("ns", resource, status=later), START)
    write = backlog.take(START)
    assert write is not None
    assert write.status is later
    assert backlog.take(START) is None


def test_over_a_quota_is_no_end_and_gives_way_to_the_job() -> None:
    backlog = Backlog()
    status = over_quota(QuotaExceeded("l", 1, 1, 1.0), datetime(2026, 1, 1, tzinfo=UTC), 1)
    waits = Write("ns", ResourceRef("c", "u", "n"), status=status)
    assert not waits.final
    backlog.put(waits, START)
    backlog.offer(entry(1, "u", 1, JobState.RUNNING), START)
    backlog.put(waits, START)
    assert taken(backlog, START + HOLD_S) == [("u", 1)]


def test_a_job_without_a_resource_is_only_acknowledged() -> None:
    backlog = Backlog()
    loose = MirrorEntry(sequence=7, job=ShownJob(id="x", namespace="ns"))
    assert not backlog.offer(loose, START)
    assert backlog.delivered() == {7}


def test_what_waits_longest_is_known_by_when_it_was_first_to_be_told() -> None:
    backlog = Backlog()
    assert backlog.oldest_since() is None
    backlog.offer(entry(1, "a", 1, JobState.INITIAL_PENDING), START)
    backlog.offer(entry(2, "b", 1, JobState.COMPLETED), START + 1)
    # What replaces it has waited as long.
    backlog.offer(entry(3, "a", 2, JobState.COMPLETED), START + 2)
    assert backlog.oldest_since() == START
    write = backlog.take(START + 2)
    assert write is not None
    assert write.uid == "b"
    assert backlog.oldest_since() == START
    backlog.done(write)
    write = backlog.take(START + 2)
    assert write is not None
    # On its way it still waits, and so does what comes meanwhile, but from then on.
    backlog.offer(entry(4, "a", 3, JobState.INITIAL_PENDING), START + 3)
    assert backlog.oldest_since() == START
    backlog.done(write)
    assert backlog.oldest_since() == START + 3
    later = backlog.take(START + 9)
    assert later is not None
    backlog.done(later)
    assert backlog.oldest_since() is None


def test_what_failed_has_waited_since_before() -> None:
    backlog = Backlog()
    backlog.offer(entry(1, "u", 1, JobState.RUNNING), START)
    write = backlog.take(START + HOLD_S)
    assert write is not None
    backlog.offer(entry(2, "u", 2, JobState.COMPLETED), START + 5)
    backlog.failed(write, START + 6)
    assert backlog.oldest_since() == START
    newer = backlog.take(START + 6)
    assert newer is not None
    assert newer.transition == 2
    backlog.offer(entry(3, "u", 3, JobState.COMPLETED), START + 7)
    backlog.failed(newer, START + 8)
    assert backlog.oldest_since() == START


def test_one_that_waits_for_ever_does_not_make_the_others_be_remembered() -> None:
    backlog = Backlog()
    backlog.offer(entry(0, "stuck", 1, JobState.INITIAL_PENDING), START)
    for number in range(1, 5000):
        backlog.offer(entry(number, f"u{number}", 1, JobState.COMPLETED), START + 0.1)
        write = backlog.take(START + 0.1)
        assert write is not None
        backlog.done(write)
    assert backlog.oldest_since() == START
    assert len(backlog._ages) < 2000
