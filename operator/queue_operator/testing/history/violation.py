"""A promise that was broken, with what is needed to see how."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_SHOWN: Final = 40


class Rule(StrEnum):
    """What the checker proves."""

    SUBMIT_KEPT = "an acknowledged submit is in the store"
    ONE_LEASE = "a job has one current lease at most"
    NO_STALE_OUTCOME = "no outcome passes under a token that is not current"
    OUTCOME_KEPT = "an acknowledged outcome is in the store"
    RESULT_KEPT = "the stored result is that of the attempt that completed the job"
    CANCEL_KEPT = "an acknowledged cancel is in the store"
    TABLE = "every transition is in the table"
    EVENTS = "the event log tells of every transition"
    ATTEMPTS = "no job has more attempts than it may"
    CAPACITY = "no stream has more jobs than its capacity"
    SLOTS = "a slot comes back when its job has left"
    COMPLETED_ONCE = "what is completed does not run again"
    KNOWN_TOKEN = "what a worker is given is in the store"  # noqa: S105
    TOKEN_ONCE = "no token runs twice"  # noqa: S105
    CHECKPOINT_KEPT = "an attempt starts from the last acknowledged checkpoint, or a newer one"
    CHILD_ONCE = "an acknowledged child is in the store, once"
    LINES_KEPT = "the stored log of an attempt is what its handler said, each line once"
    MESSAGE_ONCE = "an end of a job with a callback left one message, with an id of its own"
    MESSAGE_READ = "a receiver reads each message, under its id, and nothing else"
    ALL_ENDED = "in the end every job has ended, for a reason that somebody gave"


@dataclass(frozen=True, slots=True)
class Violation:
    """`around` is what everybody saw of the job, in order of time."""

    rule: Rule
    job_id: str
    text: str
    around: tuple[str, ...] = ()

    def __str__(self) -> str:
        about = f"job {self.job_id}: " if self.job_id else ""
        lines = [f"broken: {self.rule}", f"  {about}{self.text}"]
        lines += [f"    {line}" for line in self.around[:_SHOWN]]
        if len(self.around) > _SHOWN:
            lines.append(f"    … and {len(self.around) - _SHOWN} more")
        return "\n".join(lines)
