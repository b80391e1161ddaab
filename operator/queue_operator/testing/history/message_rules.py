"""Rules about what is told of ends: the messages of webhooks."""

from collections import Counter
from collections.abc import Iterator

from queue_operator.domain.states import is_terminal
from queue_operator.testing.history.history import History, StoredJob
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
