"""Rules about streams: leases that are renewed, capacities, and slots that come back."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from queue_operator.domain.lease import LeaseStatus
from queue_operator.domain.states import SLOT_HOLDING, Event
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind, Record
from queue_operator.testing.history.violation import Rule, Violation


def renewals(history: History) -> Iterator[Violation]:
    """A lease that was asked for after its attempt had ended is not current."""
    for record in history.of(Kind.LEASE_ANSWERED):
        asked_at = record.said.get("asked_at")
        stored = history.jobs.get(record.job_id)
        current = record.said.get("status") == LeaseStatus.CURRENT
        if stored is None or not current or not isinstance(asked_at, float):
            continue
        if text := _renewed_late(history, stored, record, asked_at):
            around = history.around(record.job_id)
            yield Violation(Rule.ONE_LEASE, record.job_id, text, around)


def _renewed_late(history: History, stored: StoredJob, record: Record, asked_at: float) -> str:
    attempt = stored.by_token.get(record.token)
    if attempt is None:
        return f"{record.assignee_id} renewed a lease that the store never gave"
    following = stored.next_after(attempt)
    if following and following.assigned_at.timestamp() < asked_at - history.statement_s:
        return f"{record.assignee_id} renewed its lease after {following.assignee_id} had it"
    ended_by = history.ended_by(attempt)
    if ended_by is not None and ended_by < asked_at:
        return f"{record.assignee_id} renewed its lease after {attempt.event} had ended it"
    return ""


def _capacities(history: History) -> Mapping[str, int]:
    """The largest that each stream was ever opened with."""
    found: defaultdict[str, int] = defaultdict(int)
    for record in history.of(Kind.STREAM_OPENED):
        capacity = record.said.get("capacity")
        if isinstance(capacity, int):
            found[record.assignee_id] = max(found[record.assignee_id], capacity)
    return found


def stored_capacity(history: History) -> Iterator[Violation]:
    """By the store's own times: jobs that take a slot of one stream at once.

    A replica that was frozen does not know at first that a stream went to another one. What it
    claims then it gives back, and it takes a slot of neither: the worker never hears of it.
    """
    steps: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)
    handed_out = {record.token for record in history.of(Kind.ASSIGNED)}
    for job_id, stored in history.jobs.items():
        for attempt, since, until in stored.holdings():
            if attempt.event == Event.RELEASE and attempt.token not in handed_out:
                continue
            steps[attempt.assignee_id].append((since.timestamp(), 1, job_id))
            if until is not None:
                steps[attempt.assignee_id].append((until.timestamp(), -1, job_id))
    for assignee_id, capacity in _capacities(history).items():
        yield from _overfull(history, assignee_id, capacity, steps[assignee_id])


def _overfull(
    history: History, assignee_id: str, capacity: int, steps: list[tuple[float, int, str]]
) -> Iterator[Violation]:
    held: set[str] = set()
    # Of two steps at one time a slot comes back before it is taken.
    for _, change, job_id in sorted(steps):
        if change < 0:
            held.discard(job_id)
            continue
        held.add(job_id)
        if len(held) > capacity:
            text = (
                f"with it {assignee_id} had {len(held)} jobs in the store, and its capacity is "
                f"{capacity}; the others: {', '.join(sorted(held - {job_id}))}"
            )
            yield Violation(Rule.CAPACITY, job_id, text, history.around(job_id))
            return


def handlers(history: History) -> Iterator[Violation]:
    """As the workers saw it: handlers that run in one process at once."""
    capacities = _capacities(history)
    running: Counter[str] = Counter()
    told: set[str] = set()
    for record in history.of(Kind.HANDLER_STARTED, Kind.HANDLER_ENDED):
        name = record.assignee_id
        running[name] += 1 if record.kind is Kind.HANDLER_STARTED else -1
        if name in capacities and running[name] > capacities[name] and name not in told:
            told.add(name)
            text = (
                f"{record.process} started it as one of {running[name]} that run, and its "
                f"capacity is {capacities[name]}"
            )
            around = history.around(record.job_id)
            yield Violation(Rule.CAPACITY, record.job_id, text, around)


def slots(history: History) -> Iterator[Violation]:
    """In the end a stream counts the jobs that the store counts, and no others."""
    if not history.quiet:
        return
    held = Counter(
        stored.job.assignee_id
        for stored in history.jobs.values()
        if stored.job.state in SLOT_HOLDING
    )
    last = {record.assignee_id: record for record in history.of(Kind.STREAM_USAGE)}
    for assignee_id, record in last.items():
        if record.said.get("busy") != held[assignee_id]:
            text = (
                f"stream {assignee_id} counts {record.said.get('busy')} slots as taken, and the "
                f"store has {held[assignee_id]} jobs of it"
            )
            yield Violation(Rule.SLOTS, "", text)
