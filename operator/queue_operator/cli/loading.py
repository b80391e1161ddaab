"""Submits a file of jobs, line by line accounted for."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

from pydantic import ValidationError
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from queue_operator.cli import rendering
from queue_operator.cli.checking import refusal
from queue_operator.cli.connection import Refused, Remote
from queue_operator.cli.values import parse_json
from queue_operator.client import QuotaWait, RetryPolicy, Submission, SubmissionResult
from queue_operator.client.flows import REJECTED
from queue_operator.client.models import QuotaError
from queue_operator.domain.errors import QuotaExceeded

PATIENT: Final = RetryPolicy(attempts=60, max_delay_s=60.0, max_quota_delay_s=3600.0)
"""A file that takes minutes outlives a restart of the server and a quota per second."""

TOLD_S: Final = 2.0
"""A longer pause is told, so that nobody wonders."""
QUIET_S: Final = 10.0
"""Waiting for a quota is told at once, and then as often."""

MOST_REJECTIONS: Final = 1000
"""Further rejected lines are counted and not listed."""
_SHOWN: Final = 20
_DUPLICATE: Final = "DUPLICATE"


@dataclass(slots=True)
class Account:
    """What became of the lines so far."""

    total: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)

    def document(self, *, dry_run: bool) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "total": self.total,
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "errors": self.listed(),
            "dry_run": dry_run,
        }

    def listed(self) -> list[dict[str, Any]]:
        """The rejected lines in their order: of some it is known later what is wrong."""
        return sorted(self.errors, key=lambda told: told["line"])

    def reject(self, line: int, code: str, message: str) -> dict[str, Any]:
        """Counts a line that is not stored."""
        self.total += 1
        self.rejected += 1
        told = {"line": line, "code": code, "message": message}
        if len(self.errors) < MOST_REJECTIONS:
            self.errors.append(told)
        return told

    def accept(self, *, is_duplicate: bool) -> None:
        """Counts a line that is stored."""
        self.total += 1
        self.accepted += 1
        self.duplicates += is_duplicate


@dataclass(frozen=True, slots=True)
class Plan:
    """Where to, what lines leave out, what their keys are made of, jobs in one request."""

    remote: Remote
    defaults: Mapping[str, Any]
    run_id: str | None
    batch_size: int
    sleep: Callable[[float], None] = time.sleep


def load(plan: Plan, file: Path, *, dry_run: bool) -> None:
    """Submits the lines of `file`, and ends the command with 1 if one was rejected."""
    loader = _Loader(plan)
    try:
        with _opened(file) as stream, _bar(file) as bar:
            (loader.check if dry_run else loader.send)(stream, bar)
    except Refused:
        _report(plan.remote, loader.account, dry_run)
        rendering.note(loader.where())
        raise
    _report(plan.remote, loader.account, dry_run)
    if loader.account.rejected:
        sys.exit(1)


class _Loader:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.account = Account()
        self._lines: deque[int] = deque()
        self._settled = 0
        self._waiting: QuotaWait | None = None
        self._quiet_s = QUIET_S

    def check(self, stream: IO[bytes], bar: Progress) -> None:
        """Reads everything and sends nothing."""
        for submission in self.submissions(stream, bar):
            line = self._lines.popleft()
            if (refused := refusal(submission)) is None:
                self.account.accept(is_duplicate=False)
            else:
                self._tell(self.account.reject(line, *refused))

    def send(self, stream: IO[bytes], bar: Progress) -> None:
        """Sends everything in batches; the good lines of one are stored whatever the others."""
        remote = self._plan.remote
        with remote.connected(PATIENT, sleep=lambda seconds: self._wait(seconds, bar)) as queue:
            for told in queue.submit_all(
                self.submissions(stream, bar),
                batch_jobs=self._plan.batch_size,
                on_wait=self._will_wait,
                namespace=remote.namespace,
            ):
                self._settle(told.results)
                self._end_without_room(told.results)

    def _will_wait(self, wait: QuotaWait) -> None:
        self._waiting = wait

    def _wait(self, seconds: float, bar: Progress) -> None:
        wait, self._waiting = self._waiting, None
        if wait is not None:
            self._quiet_s += seconds
            if self._quiet_s >= QUIET_S:
                bar.console.print(_told(wait), soft_wrap=True)
                self._quiet_s = 0.0
        elif seconds >= TOLD_S:
            text = "the server is away, or a quota is used up: trying again in"
            bar.console.print(f"{text} {seconds:.0f} s", soft_wrap=True)
        self._plan.sleep(seconds)

    def _end_without_room(self, results: Sequence[SubmissionResult]) -> None:
        """What was waited for in vain need not be waited for again with each batch."""
        errors = [item.error for item in results if item.error is not None]
        lacking = [error for error in errors if error.code == QuotaExceeded.code]
        if not lacking:
            return
        quota, jobs = lacking[0].quota, rendering.count(len(lacking), "job")
        text = f"{lacking[0].message}: {jobs} not stored, {_why(quota)}"
        hint = "ask for a larger quota, or let workers make room, and send those lines again"
        raise Refused(text, QuotaExceeded.code, hint, self._plan.remote.output)

    def where(self) -> str:
        """How to go on after a failure."""
        again = (
            "give the same --run-id again to go on: what is stored is not stored twice"
            if self._plan.run_id
            else "send the lines after it to go on; with --run-id the same file can be sent again"
        )
        return f"line {self._settled} was the last that was settled; {again}"

    def submissions(self, stream: IO[bytes], bar: Progress) -> Iterator[Submission]:
        """What the lines hold; those that hold no submission are rejected here."""
        (task,) = bar.task_ids
        for number, line in enumerate(stream, start=1):
            bar.advance(task, len(line))
            if not line.strip():
                continue
            try:
                submission = self._submission(number, line)
            except ValueError as error:
                self._tell(self.account.reject(number, "INVALID_REQUEST", faults(error)))
                continue
            self._lines.append(number)
            yield submission

    def _submission(self, number: int, line: bytes) -> Submission:
        # The field that holds what is no number is named when the job is looked at.
        given = parse_json(line, numbers_only=False)
        if not isinstance(given, dict):
            raise ValueError("is no JSON object")
        fields = {**self._plan.defaults, **given}
        if "tags" in self._plan.defaults and isinstance(given.get("tags"), dict):
            fields["tags"] = {**self._plan.defaults["tags"], **given["tags"]}
        if self._plan.run_id is not None:
            fields.setdefault("idempotency_key", f"{self._plan.run_id}:{number}")
        return Submission.from_document(fields)

    def _settle(self, results: Sequence[SubmissionResult]) -> None:
        for result in results:
            line = self._settled = self._lines.popleft()
            if result.status == REJECTED:
                error = result.error
                code, message = (error.code, error.message) if error else ("", "")
                self._tell(self.account.reject(line, code, message))
            else:
                self.account.accept(is_duplicate=result.status == _DUPLICATE)
                self._tell({"line": line, **rendering.fields_of(result)})

    def _tell(self, result: dict[str, Any]) -> None:
        if self._plan.remote.output == "jsonl":
            rendering.print_line({"status": REJECTED, **result})


def _told(wait: QuotaWait) -> str:
    """Which quota is waited for, for how long, and how long already."""
    quota = wait.quota
    named = f" {quota.limit} ({quota.current:,} of {quota.maximum:,} used)" if quota else ""
    text = f"no room for {rendering.count(wait.jobs, 'job')} within the quota{named}: "
    text += f"trying again in {_seconds(wait.seconds)}"
    if wait.waited_s:
        text += f", after {_seconds(wait.waited_s)}"
    return f"{text} (try {wait.tries} of {PATIENT.attempts}; Ctrl-C ends it)"


def _why(quota: QuotaError | None) -> str:
    most_s = PATIENT.max_quota_delay_s or 0.0
    after = quota.retry_after if quota else None
    if after is not None and after.total_seconds() > most_s:
        return f"as there will be no room for {rendering.duration(after)}"
    return f"after {PATIENT.attempts} tries in which nothing more got in"


def _seconds(seconds: float) -> str:
    return rendering.duration(timedelta(seconds=round(seconds) or 1))


def faults(error: ValueError) -> str:
    """What is wrong, by field."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_input=False, include_context=False)
    said = [one["msg"].removeprefix("Value error, ") for one in found]
    named = zip([".".join(map(str, one["loc"])) for one in found], said, strict=True)
    return "; ".join(f"{field}: {message}" if field else message for field, message in named)


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    with file.open("rb") as stream:
        yield stream


@contextmanager
def _bar(file: Path) -> Iterator[Progress]:
    """How much of the file has been read, on standard error where somebody looks."""
    size = None if str(file) == "-" else file.stat().st_size
    bar = Progress(
        TextColumn("submitting"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=rendering.console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    bar.add_task("", total=size)
    with bar:
        yield bar


def _report(remote: Remote, account: Account, dry_run: bool) -> None:
    if remote.output == "json":
        rendering.print_json(account.document(dry_run=dry_run))
        return
    verb = "would be submitted" if dry_run else "submitted"
    text = f"{rendering.count(account.accepted, 'job')} {verb}"
    if account.duplicates:
        text += f", {account.duplicates:,} of them there before"
    if account.rejected:
        text += f"; {rendering.count(account.rejected, 'line')} rejected"
    if remote.output == "table":
        print(text)
    else:
        rendering.note(text)
    for told in account.listed()[:_SHOWN] if remote.output == "table" else ():
        rendering.note(f"line {told['line']}: {told['message']}")
    if account.rejected > _SHOWN and remote.output == "table":
        rendering.note(f"… and {account.rejected - _SHOWN:,} more; --output json lists them")
