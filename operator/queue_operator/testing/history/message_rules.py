"""Rules about what is told of ends: the messages of webhooks, and what receivers read of them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from queue_operator.backends.webhooks import Message, MessageState
from queue_operator.domain.states import is_terminal
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind, Record
from queue_operator.testing.history.violation import Rule, Violation


def messages(history: History) -> Iterator[Violation]:
    """Each end of a job with a callback left one message, as long as nobody removed any."""
    ids = Counter(
        message.id for stored in history.jobs.values() for message in stored.messages or ()
    )
    for job_id, stored in history.jobs.items():
        for text in _wrong_messages(stored, ids):
            yield Violation(Rule.MESSAGE_ONCE, job_id, text, history.around(job_id))


def _wrong_messages(stored: StoredJob, ids: Counter[str]) -> Iterator[str]:
    if stored.messages is None:
        return
    asked = bool(stored.job.callback_url)
    ends = [one for one in stored.transitions if asked and is_terminal(one.after)]
    told = sorted((message.finalized_at, message.job_state) for message in stored.messages)
    if told != sorted((one.at, one.after) for one in ends):
        states = ", ".join(state for _, state in told) or "nothing"
        yield f"it ended as {', '.join(one.after for one in ends) or 'nothing'}, and told {states}"
    if doubled := sorted(message.id for message in stored.messages if ids[message.id] > 1):
        yield f"its message {doubled[0]} is told of another end too"


def read(history: History) -> Iterator[Violation]:
    """Where receivers said what they read: what is stored was read, repeats are known by their id,
    and nobody was told anything else. A receiver notes what it reads before it answers.
    """
    if next(history.of(Kind.RECEIVER_OPENED), None) is None:
        return
    found: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in history.of(Kind.MESSAGE_READ):
        found[record.job_id, str(record.said["id"])].append(record)
    for job_id, stored in history.jobs.items():
        for message in stored.messages or ():
            if text := _misread(message, found.pop((job_id, message.id), ()), history.quiet):
                yield Violation(Rule.MESSAGE_READ, job_id, text, history.around(job_id))
    for job_id, message_id in found:
        text = f"a receiver read {message_id}, and no end of the job has that message"
        yield Violation(Rule.MESSAGE_READ, job_id, text, history.around(job_id))


def _misread(message: Message, reads: Sequence[Record], quiet: bool) -> str:
    """What is wrong with it; "" for nothing."""
    accepted = any(record.said["accepted"] for record in reads)
    name = f"its message {message.id} is {message.state} after {message.tries} tries"
    if message.state is MessageState.DELIVERED and not accepted:
        return f"{name}, and no receiver accepted it"
    if quiet and not reads:
        return f"{name}, and no receiver has read it"
    if quiet and accepted and message.state is not MessageState.DELIVERED:
        return f"{name}, although a receiver accepted it"
    return ""
