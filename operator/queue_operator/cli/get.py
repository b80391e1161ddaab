"""`queue-operator get` and `why`: one job."""

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from queue_operator.cli import rendering, verdicts, webhooks
from queue_operator.cli.awaiting import until_ended
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import Remote, remote
from queue_operator.cli.values import Duration, JobId
from queue_operator.client import JobExplanation, JobStatus, QueueClient, ServerError
from queue_operator.client.models import JobResult, StateTransition
from queue_operator.domain.errors import Forbidden, InvalidArgument, Unavailable
from queue_operator.domain.traces import trace_id
from queue_operator.domain.views import Phase


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator get 01a2202b-60ba-7527-8384-af65995ae3ce",
        "queue-operator get nightly-report --wait --timeout 10m && echo done",
        "queue-operator get nightly-report -o json | jq .result.output",
        "queue-operator get nightly-report --payload -o json | jq .payload",
    ),
)
@click.argument("job_id", type=JobId())
@click.option("-w", "--watch", is_flag=True, help="Print each change until the job has ended.")
@click.option("--wait", is_flag=True, help="Wait until the job has ended.")
@click.option("--timeout", type=Duration(), help="With --watch or --wait: give up after so long.")
@click.option("--payload", is_flag=True, help="Show what the job was submitted with, too.")
@remote()
def get(
    remote: Remote,
    job_id: str,
    watch: bool,
    wait: bool,
    timeout: timedelta | None,
    payload: bool,
) -> None:
    """Show a job: its state, progress, result and history.

    With --wait or --watch the exit code is 0 if the job completed, 1 if it ended otherwise, and
    3 if it has not ended within --timeout.
    """
    if watch and wait:
        raise click.UsageError("give --watch or --wait, not both")
    if timeout is not None and not (watch or wait):
        raise click.UsageError("--timeout is for --watch and --wait")
    with remote.connected() as queue:
        if not (watch or wait):
            status = _look(remote, queue, job_id, payload)
            _print(remote, status, _told(remote, queue, status))
            return
        if watch:
            timeout_s = None if timeout is None else timeout.total_seconds()
            told, namespace = _Changes(remote).tell, remote.namespace
            status = queue.wait(job_id, timeout_s=timeout_s, on_status=told, namespace=namespace)
        else:
            status = until_ended(remote, queue, job_id, timeout)
        if watch and remote.output == "json":
            sys.exit(0 if status.state is Phase.COMPLETED else 1)
        ended(remote, _look(remote, queue, job_id, payload))


def ended(remote: Remote, status: JobStatus) -> None:
    """Prints a job that has ended, and ends the command with 1 unless it completed."""
    _print(remote, status)
    if status.state is not Phase.COMPLETED:
        sys.exit(1)


def _look(remote: Remote, queue: QueueClient, job_id: str, payload: bool) -> JobStatus:
    return queue.get(
        job_id,
        include_result=True,
        include_history=True,
        include_payload=payload,
        namespace=remote.namespace,
    )


def _told(remote: Remote, queue: QueueClient, status: JobStatus) -> str:
    """Whether somebody was told of its newest end, as far as the caller may know."""
    if not (status.callback_url and status.completed_at) or remote.output == "json":
        return ""
    try:
        page = queue.webhooks(job_id=status.job_id, limit=1, namespace=remote.namespace)
    except (Forbidden, InvalidArgument, ServerError, Unavailable):
        return ""
    return webhooks.summary(page.messages[0]) if page.messages else "DELIVERED, or deleted"


class _Changes:
    """Prints a line when something has changed."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._last: tuple[Any, ...] = ()

    def tell(self, status: JobStatus) -> None:
        """What is new, if anything is."""
        seen = (status.state, status.attempt, status.cancel_requested, status.progress)
        if seen == self._last:
            return
        self._last = seen
        if self._remote.output == "json":
            rendering.print_line(status)
            return
        line = f"{status.state.value} attempt {status.attempt}"
        if status.progress is not None:
            line += f": {status.progress.percent} % {rendering.plain(status.progress.message)}"
        print(line, flush=True)


def _print(remote: Remote, status: JobStatus, told: str = "") -> None:
    if remote.output == "json":
        rendering.print_json(status)
    else:
        rendering.show(_page(status, told))


def _attempt(status: JobStatus) -> str:
    bound = status.max_attempts
    return f"{status.attempt} of {bound}" if bound else str(status.attempt)


def _waits(status: JobStatus) -> bool:
    return status.completed_at is None and status.state is not Phase.RUNNING


def _is_held(status: JobStatus) -> bool:
    return status.suspended and status.completed_at is None


def _page(status: JobStatus, told: str) -> RenderableType:
    progress = status.progress
    facts = rendering.facts(
        [
            ("job", status.job_id),
            ("namespace", status.namespace),
            ("type", status.type),
            ("state", rendering.state(status.state, status.cancel_requested)),
            ("suspended", "until it is resumed" if _is_held(status) else ""),
            ("reason", status.reason),
            ("QueueJob", status.resource),
            ("attempt", _attempt(status)),
            ("worker", status.worker),
            ("timeout", rendering.duration(status.timeout) if status.timeout else ""),
            ("priority", status.priority.value),
            ("tags", rendering.tags(status.tags)),
            ("correlation id", status.correlation_id),
            ("trace", trace_id(status.traceparent)),
            ("callback", status.callback_url),
            ("told", told),
            ("created", rendering.moment(status.created_at)),
            ("not before", rendering.moment(status.scheduled_for) if _waits(status) else ""),
            ("started", rendering.moment(status.started_at)),
            ("ended", rendering.moment(status.completed_at)),
            ("progress", f"{progress.percent} % {progress.message}" if progress else ""),
        ]
    )
    parts: list[RenderableType] = [facts]
    if status.payload_bytes is not None or "payload" in status.model_fields_set:
        content = _content("payload", status.payload, status.payload_bytes)
        parts += [Text(), rendering.facts([content])]
    if status.result is not None:
        parts += [Text(), _result(status.result)]
    if status.history:
        parts += [Text(), _history(status.history)]
    return Group(*parts)


def _history(history: Sequence[StateTransition]) -> RenderableType:
    made = rendering.table("WHEN", "FROM", "TO", "REASON", elastic=("REASON",))
    for step in history:
        made.add_row(
            rendering.moment(step.timestamp),
            rendering.state(step.from_state) if step.from_state else "",
            rendering.state(step.to_state),
            rendering.plain(step.reason),
        )
    return made


def _result(result: JobResult) -> RenderableType:
    error = result.error
    took = None if result.duration_ms is None else timedelta(milliseconds=result.duration_ms)
    pairs: list[tuple[str, Any]] = [
        ("result", result.status),
        ("took", rendering.duration(took)),
        ("error", rendering.fault(error) if error else ""),
        ("stack trace", error.stack_trace if error else ""),
    ]
    if error is None:
        pairs.append(_content("output", result.output, result.output_bytes))
    return rendering.facts(pairs)


def _content(name: str, value: Any, raw: bytes | None) -> tuple[str, str]:
    if raw is not None:
        return name, f"{len(raw):,} bytes; --output json has them as base64"
    return name, json.dumps(value, indent=2, ensure_ascii=False)


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator why",
        "queue-operator why --type send-email",
        "queue-operator why 01a2202b-60ba-7527-8384-af65995ae3ce",
        "queue-operator why nightly-report -o json | jq -r .reason",
    ),
)
@click.argument("job_id", required=False, type=JobId())
@click.option("--type", "kind", help="How jobs of this type do.")
@remote()
def why(remote: Remote, job_id: str | None, kind: str | None) -> None:
    """Tell why a job does not run: its place in line, what it waits for, who would take it.

    Without JOB_ID, how the queue does, or one type of jobs in it: what keeps jobs back, what was
    counted, and what to do next.
    """
    if job_id is not None and kind is not None:
        raise click.UsageError("give JOB_ID or --type, not both")
    with remote.connected() as queue:
        if job_id is None:
            verdict = queue.verdict(kind, namespace=remote.namespace)
            if remote.output == "json":
                rendering.print_json(verdict)
            else:
                rendering.show(*verdicts.reasons(verdict))
            return
        told = queue.explain(job_id, namespace=remote.namespace)
    if remote.output == "json":
        rendering.print_json(told)
    else:
        rendering.show(_explanation(told))


def _explanation(told: JobExplanation) -> RenderableType:
    ahead = None
    if told.position is not None:
        ahead = rendering.count(told.position, "job", at_least=not told.position_is_exact)
    parts: list[RenderableType] = [
        Text(rendering.plain(told.message), style="bold"),
        rendering.facts(
            [
                ("job", told.job_id),
                ("state", rendering.state(told.state)),
                ("reason", told.reason),
                ("ahead of it", ahead),
                ("not before", rendering.moment(told.eligible_at)),
                ("workers that would take it", told.workers),
                ("free slots of theirs", told.free_slots),
            ]
        ),
    ]
    for parent in told.depends_on:
        shown = rendering.state(parent.state) if parent.state else Text("not ended")
        parts.append(Text.assemble("depends on ", rendering.plain(parent.job_id), " ", shown))
    for pause in told.paused:
        what = f"type {pause.type}" if pause.type else f"namespace {pause.namespace}"
        by = f" by {pause.by}" if pause.by else ""
        because = f": {pause.reason}" if pause.reason else ""
        resume = f"queue-operator resume {pause.type}".rstrip()
        parts.append(Text(rendering.plain(f"{what} is paused{by}{because}; `{resume}` ends that")))
    return Group(*parts)
