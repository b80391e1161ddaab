"""What a worker does about each message: the logic of a session, without its I/O.

All methods are called on one thread. `wake` is called when there is something to send,
`done` once a draining session holds nothing more.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Protocol

from queue_operator import __version__
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.texts import cut
from queue_operator.domain.traces import trace_id
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import outcomes
from queue_operator.worker.announcing import handler_types
from queue_operator.worker.asks import CheckpointBuffer, SpawnBuffer
from queue_operator.worker.attempts import AttemptLog
from queue_operator.worker.content import storable
from queue_operator.worker.context import (
    MAX_PROGRESS_MESSAGE_BYTES,
    WorkerIdentity,
    context_of,
)
from queue_operator.worker.errors import Cancelled
from queue_operator.worker.figures import Counted, Figures, Standing
from queue_operator.worker.handlers import Registry
from queue_operator.worker.link import SendLimits
from queue_operator.worker.outcomes import OutcomeBuffer
from queue_operator.worker.run_link import RunLink
from queue_operator.worker.runner import Ending, Fate, Run, Timer
from queue_operator.worker.settings import WorkerSettings
from queue_operator.worker.shipping import LogBuffer
from queue_operator.worker.spans import Spans
from queue_operator.worker.stuck import StuckWatch

logger = logging.getLogger(__name__)

DEFAULT_HEARTBEAT_S: Final = 5.0 / 3
_LOST: Final = (wire.LEASE_STATUS_TAKEN_OVER, wire.LEASE_STATUS_ENDED)
PROGRESS_PER_MESSAGE: Final = 512
LOG_DELAY_S: Final = 0.25


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Launcher(Protocol):
    """Runs handlers elsewhere and reports each end with `Session.finished`."""

    def start(self, run: Run) -> None: ...

    def interrupt(self, run: Run) -> None: ...


class Session:
    """The jobs of this process, and what has to be said about them."""

    def __init__(
        self,
        settings: WorkerSettings,
        identity: WorkerIdentity,
        registry: Registry,
        launcher: Launcher,
        *,
        schedule: Callable[[float, Callable[[], None]], Timer],
        post: Callable[[Callable[[], object]], object],
        wake: Callable[[], None],
        done: Callable[[], None],
        now: Callable[[], datetime] = _utc_now,
        figures: Figures | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._settings = settings
        self._identity = self._shown = identity
        self._registry = registry
        self._launcher = launcher
        self._schedule = schedule
        self._attempts = AttemptLog(schedule)
        self._post = post
        self._wake = wake
        self._now = now
        self._spans = spans
        self._done = done
        self._counted = Counted(figures)
        self.capacity = settings.capacity
        self.outcomes = OutcomeBuffer()
        self._checkpoints = CheckpointBuffer()
        self._spawns = SpawnBuffer()
        self._stuck = StuckWatch()
        self.logs = LogBuffer(lambda: post(self._log_soon))
        self._send_limits = SendLimits()
        self._batch_bytes = outcomes.MAX_BATCH_BYTES
        self.heartbeat_interval_s = DEFAULT_HEARTBEAT_S
        self.goodbye: wire.Goodbye | None = None
        self.draining = False
        self._max_result_bytes = DEFAULT_LIMITS.result_bytes
        self._runs: dict[str, Run] = {}
        # A new claim of a job whose interrupted handler has not ended yet: two handlers of
        # one job never run in one process.
        self._waiting: dict[str, Run] = {}
        self._receipts: dict[tuple[str, str], None] = {}
        self._progress: dict[str, wire.Progress] = {}
        self._drain_unsent = False
        self._types_unsent = False
        self._heartbeat_due = False
        self._know_types()

    def hello(self) -> wire.Hello:
        """The first message of a connection; on a reconnect it names what is held."""
        return wire.Hello(
            session_id=self._identity.session_id,
            process=self._identity.session_id,
            worker_name=self._identity.name,
            host=self._identity.host,
            namespace=self._identity.namespace,
            tags=sorted(self._settings.tags),
            capacity=self._settings.capacity,
            types=handler_types(self._registry.specs()),
            version=__version__,
            held=self.held(),
            pod_uid=self._settings.pod_uid,
        )

    def _know_types(self) -> None:
        self._counted.know(spec.type for spec in self._registry.specs())

    def announce(self) -> None:
        """A handler was registered: the server hears of it now, not with the next hello."""
        self._types_unsent = True
        self._know_types()
        self._wake()

    def held(self) -> list[wire.HeldJob]:
        """Jobs whose handler runs, or will, or whose outcome is not acknowledged."""
        keys = dict.fromkeys((run.job_id, run.token) for run in self._runs.values())
        keys |= dict.fromkeys((run.job_id, run.token) for run in self._waiting.values())
        keys |= dict.fromkeys(self.outcomes)
        return [wire.HeldJob(job_id=job_id, token=token) for job_id, token in keys]

    def take_messages(self) -> list[wire.WorkerMessage]:
        """What has to be sent now; progress and receipts go before the outcomes."""
        messages = []
        if self._drain_unsent:
            messages.append(wire.WorkerMessage(drain=wire.Drain()))
        if self._types_unsent:
            messages.append(
                wire.WorkerMessage(
                    types=wire.TypesUpdate(types=handler_types(self._registry.specs()))
                )
            )
        held = self.held() if self._heartbeat_due else []
        # That a draining worker holds nothing tells the server that what it has just assigned
        # will not be started.
        if held or (self._heartbeat_due and self.draining):
            messages.append(wire.WorkerMessage(heartbeat=wire.Heartbeat(held=held)))
            self._counted.beat(len(held))
        if self._receipts:
            seen = [wire.HeldJob(job_id=job, token=token) for job, token in self._receipts]
            receipts = wire.CancelReceipts(received=seen)
            messages.append(wire.WorkerMessage(cancel_receipts=receipts))
        reports = list(self._progress.values())
        for start in range(0, len(reports), PROGRESS_PER_MESSAGE):
            batch = wire.ProgressBatch(progress=reports[start : start + PROGRESS_PER_MESSAGE])
            messages.append(wire.WorkerMessage(progress=batch))
        room = self._batch_bytes
        messages += [
            wire.WorkerMessage(checkpoints=b) for b in self._checkpoints.take_batches(room)
        ]
        messages += [wire.WorkerMessage(spawns=b) for b in self._spawns.take_batches(room)]
        messages += [wire.WorkerMessage(logs=b) for b in self.logs.take_batches(room)]
        messages += [wire.WorkerMessage(outcomes=b) for b in self.outcomes.take_batches(room)]
        self._drain_unsent = self._types_unsent = self._heartbeat_due = False
        self._receipts.clear()
        self._progress.clear()
        return messages

    def heartbeat(self) -> None:
        """Renews the leases with the next messages, if anything is held, and sends again the
        outcomes that the server has not answered for some intervals. What could not begin for
        some intervals is handed back.
        """
        for run in self._stuck.tick(self._runs.values(), self._waiting.values()):
            self._return(run)
        self.outcomes.tick()
        self._checkpoints.tick()
        self._spawns.tick()
        if self._runs or self._waiting or self.outcomes:
            self._heartbeat_due = True
            self._wake()

    def disconnected(self) -> None:
        """The stream was cut: whatever the server did not confirm is said again."""
        self._counted.disconnected()
        self.outcomes.requeue()
        self._checkpoints.requeue()
        self._spawns.requeue()
        self._drain_unsent = self.draining
        self._types_unsent = False
        self._heartbeat_due = False
        for run in self._runs.values():
            run.receipted = False

    def receive(self, message: wire.ServerMessage) -> None:
        for assignment in message.assignments.assignments:
            self._assign(assignment)
        for request in message.cancels.cancels:
            self._cancel(request)
        for ack in message.outcome_acks.acks:
            self._acknowledge(ack)
        for kept in message.checkpoint_acks.acks:
            self._checkpointed(kept)
        for spawned in message.spawn_answers.answers:
            self._spawned(spawned)
        self._lease_answers(message.lease_answers.answers)
        if message.HasField("welcome"):
            self._welcome(message.welcome)
        if message.HasField("too_large"):
            logger.error("the server did not take all: %s", message.too_large.error_message)
        if message.HasField("goodbye"):
            self.goodbye = message.goodbye
        self._changed()

    def _welcome(self, welcome: wire.Welcome) -> None:
        self.goodbye = None
        self._counted.connected()
        # A token may have proved another one than the settings say.
        namespace = welcome.namespace or self._identity.namespace
        self._shown = replace(self._identity, namespace=namespace)
        self.capacity = welcome.capacity or self._settings.capacity
        self.heartbeat_interval_s = (
            welcome.heartbeat_interval.ToTimedelta().total_seconds() or DEFAULT_HEARTBEAT_S
        )
        result_bytes = welcome.max_result_bytes or DEFAULT_LIMITS.result_bytes
        self._max_result_bytes = min(result_bytes, welcome.max_message_bytes or result_bytes)
        self._send_limits = SendLimits(
            checkpoint_bytes=welcome.max_checkpoint_bytes or DEFAULT_LIMITS.checkpoint_bytes,
            payload_bytes=welcome.max_payload_bytes or DEFAULT_LIMITS.payload_bytes,
        )
        # A batch must not be refused for its size where none of its items would be.
        message_bytes = welcome.max_message_bytes or outcomes.MAX_BATCH_BYTES * 4 // 3
        self._batch_bytes = min(outcomes.MAX_BATCH_BYTES, message_bytes * 3 // 4)
        self.heartbeat()

    def _assign(self, assignment: wire.Assignment) -> None:
        job_id, token = assignment.job_id, assignment.token
        run, waiting = self._runs.get(job_id), self._waiting.get(job_id)
        known = any(one is not None and one.token == token for one in (run, waiting))
        if known or (job_id, token) in self.outcomes:
            return
        if run is not None and run.fate is Fate.OPEN:
            self._adopt(run, assignment)
        elif self.outcomes.readdress(job_id, token):
            logger.info("job %s had completed here: reported under its new token", job_id)
        elif self.draining:
            outcome = outcomes.bare(job_id, token, wire.OUTCOME_KIND_HAND_BACK)
            self._say(outcome, assignment)
        else:
            self._accept(assignment)

    def _adopt(self, run: Run, assignment: wire.Assignment) -> None:
        logger.info("job %s was claimed anew while it runs here: it goes on", run.job_id)
        self._readdress(run, assignment.token)
        self._arm(run, assignment)

    def _accept(self, assignment: wire.Assignment) -> None:
        job_id = assignment.job_id
        spec = self._registry.get(assignment.type)
        if spec is None:
            error = outcomes.no_handler(assignment.type)
            self._say(outcomes.failed(job_id, assignment.token, error), assignment)
            return
        link = RunLink(self, assignment.attempt, self._post)
        context = context_of(assignment, self._shown, link, self._send_limits, self._now())
        link.run = run = Run(job_id, assignment.token, spec, context, self._max_result_bytes)
        self._arm(run, assignment)
        if job_id in self._runs:
            self._forget_waiting(job_id)
            self._waiting[job_id] = run
        else:
            self._start(run)

    def _arm(self, run: Run, assignment: wire.Assignment) -> None:
        if run.timer is not None:
            run.timer.cancel()
            run.timer = None
        if assignment.HasField("timeout"):
            left_s = max(assignment.timeout.ToTimedelta().total_seconds(), 0.0)
            run.timer = self._schedule(left_s, lambda: self._timed_out(run))

    def _start(self, run: Run) -> None:
        self._runs[run.job_id] = run
        self._launcher.start(run)

    def _cancel(self, request: wire.CancelRequest) -> None:
        key = (request.job_id, request.token)
        self._receipts[key] = None
        run = self._runs.get(request.job_id)
        waiting = self._waiting.get(request.job_id)
        if key in self.outcomes:
            return  # it has ended; what it ended with is on its way
        if waiting is not None and waiting.token == request.token:
            self._drop_waiting(waiting, wire.OUTCOME_KIND_ACK_EXECUTING)
        elif run is not None and run.fate is Fate.OPEN:
            # A job that is being cancelled is not claimed again, so if the token is not
            # ours it is newer than ours.
            if run.token != request.token:
                self._readdress(run, request.token)
            self._request_cancel(run, force=request.force)
        else:
            self._say(outcomes.bare(*key, wire.OUTCOME_KIND_ACK_UNKNOWN))

    def _request_cancel(self, run: Run, *, force: bool) -> None:
        run.receipted = True
        run.cancel_requested = True
        if run.withdraw():
            # Nothing of it ran, and nothing will.
            outcome = outcomes.bare(run.job_id, run.token, wire.OUTCOME_KIND_ACK_EXECUTING)
            self._say(outcome)
            self._counted.ended(run.context.type, outcome, None)
            self._interrupt(run, Fate.SETTLED)
            return
        run.context.cancelled.set()
        if force and not run.cancel_forced:
            run.cancel_forced = True
            self._launcher.interrupt(run)

    def _acknowledge(self, ack: wire.OutcomeAck) -> None:
        known = self.outcomes.acknowledge(ack.job_id, ack.token)
        if known is not None and self._spans is not None:
            self._spans.answered(ack)
        if known is not None and ack.error_code:
            logger.warning(
                "the outcome of job %s was refused: %s %s",
                ack.job_id,
                ack.error_code,
                ack.error_message,
            )

    def _lease_answers(self, answers: Sequence[wire.LeaseAnswer]) -> None:
        if answers:
            self._counted.answered()
        for answer in answers:
            self._lease_answer(answer)

    def _lease_answer(self, answer: wire.LeaseAnswer) -> None:
        waiting = self._waiting.get(answer.job_id)
        if waiting is not None and waiting.token == answer.token:
            if answer.status in _LOST:
                self._forget_waiting(answer.job_id)
                self._counted.lease_lost()
                self._counted.lost(waiting.context.type, None)
            return
        run = self._runs.get(answer.job_id)
        if run is None or run.token != answer.token or run.fate is not Fate.OPEN:
            return
        if answer.status in _LOST:
            self._counted.lease_lost()
        if answer.status == wire.LEASE_STATUS_TAKEN_OVER:
            logger.warning("job %s runs elsewhere now: stopping it here", run.job_id)
            self._counted.lost(run.context.type, run.begun_s)
            self._interrupt(run, Fate.TAKEN_OVER)
        elif answer.status == wire.LEASE_STATUS_ENDED:
            logger.warning("job %s was ended by the queue: stopping it", run.job_id)
            self._interrupt(run, Fate.ENDED)
        elif answer.cancel_requested:
            self._learn_of_cancel(run, force=answer.cancel_forced)

    def _learn_of_cancel(self, run: Run, *, force: bool) -> None:
        """From an answer to something else than a cancel request."""
        if not run.receipted:
            self._receipts[(run.job_id, run.token)] = None
        self._request_cancel(run, force=force)

    def finished(self, run: Run, ending: Ending) -> None:
        """A handler has ended, whatever became of its job meanwhile."""
        if run.timer is not None:
            run.timer.cancel()
        if self._runs.get(run.job_id) is run:
            del self._runs[run.job_id]
        self._stuck.ended(run)
        if self._checkpoints or self._spawns:
            self._drop_asks(run, StaleLease(run.job_id))
        if (outcome := outcomes.conclude(run, ending)) is not None:
            self._say(outcome, run)
            self._trace(run, outcome)
        elif run.fate is Fate.ENDED:
            self._counted.lost(run.context.type, run.begun_s)
        successor = self._waiting.pop(run.job_id, None)
        if successor is not None:
            self._start(successor)
        self._changed()

    def progress(self, run: Run, percent: int, message: str) -> None:
        """The latest report of a job replaces one that was not sent yet."""
        if self._is_open(run):
            text = cut(storable(message), MAX_PROGRESS_MESSAGE_BYTES)
            self._progress[run.job_id] = wire.Progress(
                job_id=run.job_id, token=run.token, percent=percent, message=text
            )
            self._wake()

    def _log_soon(self) -> None:
        """Lines travel with what is sent anyway, and soon by themselves."""
        self._schedule(LOG_DELAY_S, self._wake)

    def checkpoint(self, run: Run, data: bytes, done: "Future[None]") -> None:
        """Kept until the server has answered; who stores one more meanwhile replaces it."""
        if self._is_open(run):
            self._checkpoints.add(run, data, done)
            self._wake()
        else:
            done.set_exception(_gone(run))

    def spawn(self, run: Run, key: str, job: wire.ChildJob, done: "Future[str]") -> None:
        """Asked for until the server has answered."""
        if self._is_open(run):
            self._spawns.add(run, key, job, done)
            self._wake()
        else:
            done.set_exception(_gone(run))

    def _readdress(self, run: Run, token: str) -> None:
        """What was not answered under the old token is asked again under the new one."""
        run.token = token
        self._checkpoints.readdress(run)
        self._spawns.readdress(run)

    def _drop_asks(self, run: Run, error: Exception) -> None:
        self._checkpoints.drop(run, error)
        self._spawns.drop(run, error)

    def _is_open(self, run: Run) -> bool:
        return self._runs.get(run.job_id) is run and run.fate is Fate.OPEN

    def _checkpointed(self, ack: wire.CheckpointAck) -> None:
        run = self._runs.get(ack.job_id)
        if run is None:
            return
        if ack.cancel_requested and ack.token == run.token and run.fate is Fate.OPEN:
            # Before the handler goes on: this is where it looks.
            self._learn_of_cancel(run, force=ack.cancel_forced)
        self._checkpoints.acknowledge(run, ack)

    def _spawned(self, answer: wire.SpawnAnswer) -> None:
        run = self._runs.get(answer.parent_id)
        if run is not None:
            self._spawns.answer(run, answer)

    def drain(self) -> None:
        """Takes no more jobs; those that run may finish."""
        if not self.draining:
            self.draining = True
            self._drain_unsent = True
            for run in tuple(self._waiting.values()):
                self._drop_waiting(run, wire.OUTCOME_KIND_HAND_BACK)
        self._wake()
        self._changed()

    def hand_back(self) -> None:
        """Gives every unfinished job back, so that another worker can take it at once."""
        self.drain()
        for run in tuple(self._runs.values()):
            if run.fate is Fate.OPEN:
                outcome = outcomes.bare(run.job_id, run.token, wire.OUTCOME_KIND_HAND_BACK)
                self._say(outcome, run)
                self._trace(run, outcome)
                self._interrupt(run, Fate.SETTLED)
        self._changed()

    def abandon(self) -> None:
        """Stops everything without a word: the server no longer listens."""
        for run in tuple(self._runs.values()):
            if run.fate is Fate.OPEN:
                self._counted.lost(run.context.type, run.begun_s)
            self._interrupt(run, Fate.SETTLED)
        for job_id in tuple(self._waiting):
            self._forget_waiting(job_id)
        self.outcomes.clear()
        self.draining = True
        self._changed()

    @property
    def running(self) -> int:
        """Handlers that have not ended, whether or not their outcome still counts."""
        return len(self._runs)

    def standing(self, *, connected: bool) -> Standing:
        """For the figures; from any thread."""
        free = 0 if self.draining else max(0, self.capacity - len(self._runs))
        return Standing(
            connected=connected,
            busy=len(self._runs),
            free=free,
            handlers=len(self._registry.specs()),
            unsent=len(self.outcomes),
            stuck=self._stuck.count,
        )

    @property
    def stuck(self) -> bool:
        """Whether a handler goes on that should have ended, or could not begin."""
        return self._stuck.any

    @property
    def idle(self) -> bool:
        """Nothing that the server waits for: no open run, no unacknowledged outcome."""
        return not (
            self._waiting
            or self.outcomes
            or any(run.fate is Fate.OPEN for run in self._runs.values())
        )

    def _timed_out(self, run: Run) -> None:
        if run.fate is not Fate.OPEN:
            return
        if not self._return(run):
            self._say(outcome := outcomes.failure(run, outcomes.TIMED_OUT), run)
            self._trace(run, outcome)
            self._interrupt(run, Fate.SETTLED)
        self._changed()

    def _return(self, run: Run) -> bool:
        """Hands a job back of which nothing ran here, and says whether that is so: its attempt
        does not count.
        """
        if self._waiting.get(run.job_id) is run:
            self._drop_waiting(run, wire.OUTCOME_KIND_HAND_BACK)
            return True
        if not run.withdraw():
            return False
        outcome = outcomes.bare(run.job_id, run.token, wire.OUTCOME_KIND_HAND_BACK)
        self._say(outcome, run)
        self._interrupt(run, Fate.SETTLED)
        return True

    def _drop_waiting(self, run: Run, kind: wire.OutcomeKind.ValueType) -> None:
        self._forget_waiting(run.job_id)
        self._say(outcomes.bare(run.job_id, run.token, kind), run)

    def _forget_waiting(self, job_id: str) -> None:
        run = self._waiting.pop(job_id, None)
        if run is not None and run.timer is not None:
            run.timer.cancel()

    def _interrupt(self, run: Run, fate: Fate) -> None:
        run.fate = fate
        run.ticks = 0
        run.withdraw()
        if run.timer is not None:
            run.timer.cancel()
        run.context.cancelled.set()
        self._drop_asks(run, _gone(run))
        self._launcher.interrupt(run)

    def _say(self, outcome: wire.Outcome, of: Run | wire.Assignment | None = None) -> None:
        """`of` is the attempt that ended by it, or none began here."""
        self.outcomes.add(outcome)
        if of is not None:
            run = of if isinstance(of, Run) else None
            job = of.context if isinstance(of, Run) else of
            trace = (run.trace.id if run else "") or trace_id(job.traceparent)
            namespace = self._shown.namespace
            self._attempts.ended(outcome, job.type, job.attempt, namespace=namespace, trace=trace)
            self._counted.ended(job.type, outcome, None if run is None else run.begun_s)
        self._wake()

    def _trace(self, run: Run, outcome: wire.Outcome) -> None:
        if self._spans is not None:
            self._spans.said(run, outcome)

    def _changed(self) -> None:
        if self._receipts:
            self._wake()
        if self.draining and self.idle:
            self._heartbeat_due = True
            self._attempts.flush()
            self._done()


def _gone(run: Run) -> Exception:
    """Why a run no longer speaks for its job."""
    return Cancelled() if run.fate is Fate.SETTLED else StaleLease(run.job_id)
