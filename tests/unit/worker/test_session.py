"""What a worker does about each message, without I/O."""

import logging
from typing import Any

import pytest

from queue_operator.domain.outcome import ErrorInfo
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.errors import Cancelled
from queue_operator.worker.runner import Completed, Failed, Stopped

DONE = Completed(b'"ok"', "application/json")
FAILED = Failed(ErrorInfo(message="no", code="Boom"))


def kinds(outcomes: list[wire.Outcome]) -> list[tuple[str, str, str]]:
    return [
        (o.job_id, o.token, wire.OutcomeKind.Name(o.kind).removeprefix("OUTCOME_KIND_"))
        for o in outcomes
    ]


def test_the_hello_says_what_the_worker_is(rig: Any) -> None:
    hello = rig.session.hello()
    assert (hello.session_id, hello.worker_name, hello.host) == ("s1", "worker-1", "node-1")
    assert (hello.namespace, hello.pod_uid, hello.capacity) == ("team-a", "uid-1", 7)
    assert list(hello.tags) == ["eu", "gpu"]
    assert [t.type for t in hello.types] == ["work", "other"]
    assert (hello.types[0].concurrency, hello.types[0].max_attempts) == (2, 3)
    assert hello.types[0].timeout.ToTimedelta().total_seconds() == 1.5
    assert list(hello.held) == []


def test_handlers_are_told_the_namespace_that_the_server_found(rig: Any, say: Any) -> None:
    """By the worker's token, whatever its settings say."""
    assert rig.assign("a", "t1").context.worker.namespace == "team-a"
    rig.session.receive(say.welcome())
    assert rig.assign("b", "t2").context.worker.namespace == "default"
    assert rig.session.hello().namespace == "team-a"


def test_the_next_hello_names_running_jobs_and_unacknowledged_outcomes(rig: Any) -> None:
    run = rig.assign("a", "t1")
    rig.assign("b", "t2")
    rig.session.finished(run, DONE)
    rig.outcomes()
    rig.session.disconnected()
    assert [(h.job_id, h.token) for h in rig.session.hello().held] == [("b", "t2"), ("a", "t1")]


def test_an_outcome_is_kept_until_it_is_acknowledged(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.finished(run, DONE)
    first = rig.outcomes()
    assert kinds(first) == [("a", "t1", "COMPLETE")]
    assert first[0].result == b'"ok"'
    assert rig.outcomes() == []
    rig.session.disconnected()
    assert rig.outcomes() == first
    rig.session.receive(say.ack(*first))
    rig.session.disconnected()
    assert rig.outcomes() == []
    assert rig.held() == []


def test_a_refused_outcome_is_not_sent_again(
    rig: Any, say: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig.session.finished(rig.assign("a", "t1"), DONE)
    with caplog.at_level(logging.WARNING):
        rig.session.receive(say.ack(*rig.outcomes(), error_code="STALE_LEASE"))
    assert "STALE_LEASE" in caplog.text
    rig.session.disconnected()
    assert rig.outcomes() == []


def test_an_outcome_without_an_answer_is_sent_again(rig: Any, say: Any) -> None:
    rig.session.finished(rig.assign("a", "t1"), DONE)
    first = rig.outcomes()
    for _ in range(2):
        rig.session.heartbeat()
        assert rig.outcomes() == []
    rig.session.heartbeat()
    assert rig.outcomes() == first
    rig.session.receive(say.ack(*first))
    for _ in range(9):
        rig.session.heartbeat()
    assert rig.outcomes() == []


def test_an_acknowledgement_of_an_older_token_settles_nothing(rig: Any, say: Any) -> None:
    rig.session.finished(rig.assign("a", "t2"), DONE)
    rig.session.receive(say.ack(wire.Outcome(job_id="a", token="t1"), error_code="STALE_LEASE"))
    assert kinds(rig.outcomes()) == [("a", "t2", "COMPLETE")]


def test_a_type_without_a_handler_fails(rig: Any, say: Any) -> None:
    rig.session.receive(say.assigned(say.assignment("a", "t1", "unheard-of")))
    (outcome,) = rig.outcomes()
    assert outcome.kind == wire.OUTCOME_KIND_FAIL
    assert outcome.error.code == "NO_HANDLER"
    assert outcome.error.category == wire.ERROR_CATEGORY_SYSTEM
    assert rig.started == []


def test_the_same_assignment_twice_starts_once(rig: Any) -> None:
    run = rig.assign("a", "t1")
    rig.assign("a", "t1")
    assert rig.started == [run]
    rig.session.finished(run, DONE)
    rig.assign("a", "t1")
    assert rig.started == [run]


@proves("external-api.WorkerProcess.expect.5")
def test_a_running_job_adopts_a_new_token(rig: Any) -> None:
    run = rig.assign("a", "t1", timeout_s=10)
    rig.assign("a", "t2", timeout_s=30)
    assert rig.started == [run]
    assert rig.held() == [("a", "t2")]
    assert rig.timers[0].cancelled
    assert not rig.timers[1].cancelled
    rig.session.finished(run, DONE)
    assert kinds(rig.outcomes()) == [("a", "t2", "COMPLETE")]


def test_a_completion_that_nobody_stored_is_reported_under_the_new_token(rig: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.finished(run, DONE)
    rig.outcomes()
    rig.assign("a", "t2")
    assert rig.started == [run]
    assert kinds(rig.outcomes()) == [("a", "t2", "COMPLETE")]
    assert rig.held() == [("a", "t2")]


def test_a_retry_that_overtakes_the_acknowledgement_of_the_failure_runs(rig: Any) -> None:
    first = rig.assign("a", "t1")
    rig.session.finished(first, FAILED)
    second = rig.assign("a", "t2")
    assert second is not first
    rig.session.finished(second, DONE)
    assert kinds(rig.outcomes()) == [("a", "t1", "FAIL"), ("a", "t2", "COMPLETE")]


def test_a_cancel_sets_the_flag_and_is_receipted(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.receive(say.cancel("a", "t1"))
    assert run.context.is_cancelled()
    assert rig.interrupted == []
    (receipts,) = rig.sent("cancel_receipts")
    assert [(r.job_id, r.token) for r in receipts.received] == [("a", "t1")]
    rig.session.finished(run, Stopped())
    assert kinds(rig.outcomes()) == [("a", "t1", "ACK_EXECUTING")]


@pytest.mark.parametrize(("ending", "kind"), [(DONE, "COMPLETE"), (FAILED, "FAIL")])
@proves("external-api.HandlerRegistration.expect.14")
def test_a_handler_may_end_in_its_own_way_despite_a_cancel(
    rig: Any, say: Any, ending: Any, kind: str
) -> None:
    run = rig.assign("a", "t1")
    rig.session.receive(say.cancel("a", "t1"))
    rig.session.finished(run, ending)
    assert kinds(rig.outcomes()) == [("a", "t1", kind)]


@pytest.mark.parametrize(
    ("ending", "kind"), [(DONE, "COMPLETE"), (FAILED, "FAIL"), (Stopped(), "ACK_EXECUTING")]
)
@proves("external-api.HandlerRegistration.expect.14")
def test_a_forced_cancel_interrupts_once(rig: Any, say: Any, ending: Any, kind: str) -> None:
    """Work that was done all the same counts, and so does how it failed."""
    run = rig.assign("a", "t1")
    rig.session.receive(say.cancel("a", "t1"))
    rig.session.receive(say.cancel("a", "t1", force=True))
    rig.session.receive(say.cancel("a", "t1", force=True))
    assert rig.interrupted == [run]
    rig.session.finished(run, ending)
    assert kinds(rig.outcomes()) == [("a", "t1", kind)]


def test_a_cancel_of_a_job_that_is_not_here(rig: Any, say: Any) -> None:
    rig.session.receive(say.cancel("a", "t1"))
    assert kinds(rig.outcomes()) == [("a", "t1", "ACK_UNKNOWN")]


def test_a_cancel_that_crosses_the_outcome_changes_nothing(rig: Any, say: Any) -> None:
    rig.session.finished(rig.assign("a", "t1"), DONE)
    rig.session.receive(say.cancel("a", "t1"))
    assert kinds(rig.outcomes()) == [("a", "t1", "COMPLETE")]


def test_a_cancel_under_a_newer_token_reaches_the_handler(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.receive(say.cancel("a", "t2"))
    assert run.context.is_cancelled()
    rig.session.finished(run, Stopped())
    assert kinds(rig.outcomes()) == [("a", "t2", "ACK_EXECUTING")]


def test_a_handler_that_nobody_cancelled_may_not_say_so(rig: Any) -> None:
    rig.session.finished(rig.assign("a", "t1"), Stopped())
    (outcome,) = rig.outcomes()
    assert outcome.kind == wire.OUTCOME_KIND_FAIL
    assert outcome.error.code == "UNEXPECTED_CANCEL"
    assert outcome.error.category == wire.ERROR_CATEGORY_TEMPORARY


def test_a_lease_answer_tells_of_a_missed_cancel(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    asked = say.lease("a", "t1", wire.LEASE_STATUS_CURRENT, cancel_requested=True)
    rig.session.receive(asked)
    assert run.context.is_cancelled()
    assert len(rig.sent("cancel_receipts")) == 1
    rig.session.receive(asked)
    assert rig.sent("cancel_receipts") == []
    rig.session.disconnected()
    rig.session.receive(
        say.lease("a", "t1", wire.LEASE_STATUS_CURRENT, cancel_requested=True, cancel_forced=True)
    )
    assert len(rig.sent("cancel_receipts")) == 1
    assert rig.interrupted == [run]


@pytest.mark.parametrize("status", [wire.LEASE_STATUS_CURRENT, wire.LEASE_STATUS_LOST])
def test_current_and_lost_leases_go_on(rig: Any, say: Any, status: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", status))
    assert not run.context.is_cancelled()
    rig.session.finished(run, DONE)
    assert kinds(rig.outcomes()) == [("a", "t1", "COMPLETE")]


@pytest.mark.parametrize("ending", [DONE, FAILED, Stopped()])
@proves("external-api.WorkerProcess.expect.6")
def test_a_job_taken_over_is_stopped_and_its_outcome_dropped(
    rig: Any, say: Any, ending: Any
) -> None:
    run = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    assert run.context.is_cancelled()
    assert rig.interrupted == [run]
    assert rig.held() == [("a", "t1")]
    rig.session.finished(run, ending)
    assert rig.outcomes() == []
    assert rig.held() == []


@pytest.mark.parametrize(
    ("ending", "said"), [(DONE, [("a", "t1", "COMPLETE")]), (FAILED, []), (Stopped(), [])]
)
def test_a_job_that_the_queue_ended_may_still_complete(
    rig: Any, say: Any, ending: Any, said: Any
) -> None:
    run = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_ENDED))
    assert rig.interrupted == [run]
    rig.session.finished(run, ending)
    assert kinds(rig.outcomes()) == said


def test_an_answer_about_an_older_token_is_ignored(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    rig.assign("a", "t2")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    assert not run.context.is_cancelled()


def test_two_handlers_of_one_job_never_run_together(rig: Any, say: Any) -> None:
    first = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    rig.assign("a", "t2")
    assert rig.started == [first]
    assert rig.held() == [("a", "t1"), ("a", "t2")]
    rig.session.finished(first, Stopped())
    assert [run.token for run in rig.started] == ["t1", "t2"]
    rig.session.finished(rig.started[1], DONE)
    assert kinds(rig.outcomes()) == [("a", "t2", "COMPLETE")]


def test_a_waiting_claim_can_be_cancelled(rig: Any, say: Any) -> None:
    first = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    rig.assign("a", "t2")
    rig.session.receive(say.cancel("a", "t2"))
    rig.session.finished(first, Stopped())
    assert rig.started == [first]
    assert kinds(rig.outcomes()) == [("a", "t2", "ACK_EXECUTING")]


@pytest.mark.parametrize("status", [wire.LEASE_STATUS_TAKEN_OVER, wire.LEASE_STATUS_ENDED])
def test_a_waiting_claim_can_be_lost(rig: Any, say: Any, status: Any) -> None:
    first = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    rig.assign("a", "t2", timeout_s=5)
    rig.session.receive(say.lease("a", "t2", status))
    assert rig.timers[-1].cancelled
    rig.session.finished(first, Stopped())
    assert rig.started == [first]
    assert rig.outcomes() == []


def test_a_timeout_is_reported_at_once(rig: Any) -> None:
    run = rig.assign("a", "t1", timeout_s=2.5)
    assert rig.timers[0].delay_s == 2.5
    rig.timers[0].action()
    (outcome,) = rig.outcomes()
    assert outcome.kind == wire.OUTCOME_KIND_FAIL
    assert outcome.error.category == wire.ERROR_CATEGORY_TIMEOUT
    assert run.context.is_cancelled()
    assert rig.interrupted == [run]
    rig.session.finished(run, DONE)
    assert rig.outcomes() == []


def test_a_retry_after_a_timeout_waits_for_the_old_handler(rig: Any) -> None:
    first = rig.assign("a", "t1", timeout_s=1)
    rig.timers[0].action()
    rig.assign("a", "t2", timeout_s=1)
    assert rig.started == [first]
    rig.session.finished(first, DONE)
    assert [run.token for run in rig.started] == ["t1", "t2"]
    assert kinds(rig.outcomes()) == [("a", "t1", "FAIL")]


def test_the_timer_ends_with_the_handler(rig: Any) -> None:
    run = rig.assign("a", "t1", timeout_s=1)
    rig.session.finished(run, DONE)
    assert rig.timers[0].cancelled


def test_a_heartbeat_names_what_is_held(rig: Any) -> None:
    rig.session.heartbeat()
    assert rig.sent("heartbeat") == []
    rig.assign("a", "t1")
    rig.session.heartbeat()
    (beat,) = rig.sent("heartbeat")
    assert [(h.job_id, h.token) for h in beat.held] == [("a", "t1")]
    assert rig.sent("heartbeat") == []


def test_a_welcome_after_a_cut_asks_about_the_leases_at_once(rig: Any, say: Any) -> None:
    rig.assign("a", "t1")
    rig.session.receive(say.welcome(0.7))
    assert rig.session.heartbeat_interval_s == pytest.approx(0.7)
    assert len(rig.sent("heartbeat")) == 1


@proves("external-api.JobContext.rule.9")
def test_the_latest_progress_is_sent_once(rig: Any) -> None:
    run = rig.assign("a", "t1")
    run.context.report_progress(1, "first")
    run.context.report_progress(50, "\N{SNOWMAN}" * 1000)
    (batch,) = rig.sent("progress")
    (progress,) = batch.progress
    assert (progress.job_id, progress.token, progress.percent) == ("a", "t1", 50)
    assert len(progress.message.encode()) <= 1024
    assert rig.sent("progress") == []


def test_reports_that_come_faster_than_they_are_heard_wait_as_one(rig: Any) -> None:
    posted: list[Any] = []
    rig.session._post = posted.append
    run = rig.assign("a", "t1")
    for percent in range(100):
        run.context.report_progress(percent)
    assert len(posted) == 1
    posted.pop()()
    run.context.report_progress(100)
    assert len(posted) == 1
    posted.pop()()
    ((progress,),) = (batch.progress for batch in rig.sent("progress"))
    assert progress.percent == 100


def test_progress_of_a_job_that_is_no_longer_ours_is_dropped(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    with pytest.raises(Cancelled):
        run.context.report_progress(50)
    rig.session.progress(run, 50, "on its way when the job was lost")
    assert rig.sent("progress") == []


@proves("external-api.WorkerProcess.expect.3")
def test_draining_waits_for_handlers_and_acknowledgements(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.drain()
    assert len(rig.sent("drain")) == 1
    assert not run.context.is_cancelled()
    assert rig.done == 0
    rig.session.finished(run, DONE)
    assert rig.done == 0
    rig.session.receive(say.ack(*rig.outcomes()))
    assert rig.done == 1


def test_an_idle_worker_drains_at_once(rig: Any) -> None:
    rig.session.drain()
    assert rig.done == 1


def test_a_reconnect_says_drain_again(rig: Any) -> None:
    rig.assign("a", "t1")
    rig.session.drain()
    rig.sent("drain")
    rig.session.disconnected()
    assert len(rig.sent("drain")) == 1


def test_jobs_that_arrive_while_draining_go_back_unstarted(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.drain()
    rig.session.receive(say.assigned(say.assignment("b", "t2")))
    assert rig.started == [run]
    assert kinds(rig.outcomes()) == [("b", "t2", "HAND_BACK")]


def test_handing_back_gives_every_open_job_back(rig: Any, say: Any) -> None:
    taken = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    rig.assign("a", "t1b")
    run = rig.assign("b", "t2")
    rig.session.hand_back()
    outcomes = rig.outcomes()
    assert sorted(kinds(outcomes)) == [("a", "t1b", "HAND_BACK"), ("b", "t2", "HAND_BACK")]
    assert rig.interrupted == [taken, run]
    rig.session.finished(run, Stopped())
    assert rig.outcomes() == []
    rig.session.receive(say.ack(*outcomes))
    assert rig.done >= 1


def test_abandoning_ends_without_an_answer(rig: Any) -> None:
    run = rig.assign("a", "t1")
    rig.session.hand_back()
    assert rig.done == 0
    rig.session.abandon()
    assert rig.done >= 1
    assert run.context.is_cancelled()
    assert rig.held() == [("a", "t1")]


@proves(
    "external-api.JobContext.rule.1",
    "external-api.JobContext.rule.2",
    "external-api.JobContext.rule.4",
    "external-api.JobContext.rule.5",
    "external-api.JobContext.rule.6",
)
def test_the_context_of_an_assignment(rig: Any, say: Any) -> None:
    message = say.assignment(
        "a",
        "t1",
        payload=b"\x00\x01",
        content_type="application/octet-stream",
        tags=["region=eu", "gpu"],
        correlation_id="c-1",
        priority="HIGH",
        timeout_s=60,
    )
    message.attempt = 4
    message.created_at.FromJsonString("2026-01-02T03:04:05.000006Z")
    rig.session.receive(say.assigned(message))
    context = rig.started[0].context
    assert (context.job_id, context.type, context.attempt) == ("a", "work", 4)
    assert context.created_at.isoformat() == "2026-01-02T03:04:05.000006+00:00"
    assert context.tags == {"region": "eu", "gpu": ""}
    assert (context.correlation_id, context.priority) == ("c-1", "HIGH")
    assert (context.payload, context.content_type) == (b"\x00\x01", "application/octet-stream")
    assert context.deadline is not None
    assert context.worker.session_id == "s1"
