"""`queue-operator submit`: one job, or a file of them."""

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from queue_operator.cli import loading, rendering
from queue_operator.cli.awaiting import until_ended
from queue_operator.cli.checking import refusal
from queue_operator.cli.command import Bytes, ExampleCommand
from queue_operator.cli.connection import Remote, remote
from queue_operator.cli.get import ended
from queue_operator.cli.values import Duration, Tag, When, parse_json, tag_map
from queue_operator.client import Submission, SubmissionResult
from queue_operator.client.flows import BATCH_JOBS
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import BackoffStrategy
from queue_operator.domain.views import Phase

_SPECIFIC = ("payload", "job_id", "idempotency_key", "raw", "wait", "wait_timeout")
"""What can be for one job only."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The fields of a submission."""
    choice = click.Choice
    for option in reversed(
        (
            click.option("--job-id", help="An id of your own, up to 255 characters."),
            click.option(
                "--key",
                "idempotency_key",
                help="Idempotency key: submitted again under it, the job is stored once.",
            ),
            click.option("--priority", type=choice(list(Priority), case_sensitive=False)),
            click.option("--delay", type=Duration(), help="Not before so long from now: 5m, PT5M."),
            click.option("--at", "scheduled_at", type=When(ago=False), help="Not before then."),
            click.option(
                "--timeout",
                type=Duration(),
                help="Limit of one execution of the job; see also --wait-timeout.",
            ),
            click.option("--max-attempts", type=click.IntRange(1, 100)),
            click.option("--tag", "tags", type=Tag(), multiple=True, help="May be repeated."),
            click.option("--correlation-id", help="Yours, for tracing."),
            click.option(
                "--depends-on", multiple=True, metavar="JOB_ID", help="Not before that job is done."
            ),
            click.option(
                "--dependency-type",
                type=choice(list(DependencyMode), case_sensitive=False),
                help="All of them (AFTER), one (AFTER_ANY), or all with the output of the last "
                "handed on (CHAIN).",
            ),
            click.option(
                "--suspended",
                is_flag=True,
                default=None,
                help="The job waits until `resume --job` lets it run.",
            ),
            click.option(
                "--callback-url",
                help="Where to tell that the job has ended: a webhook.",
            ),
            click.option(
                "--backoff",
                type=choice(list(BackoffStrategy), case_sensitive=False),
                help="How the pauses before retries grow.",
            ),
            click.option("--initial-delay", type=Duration(), help="The first such pause."),
            click.option("--max-delay", type=Duration(), help="The longest such pause."),
            click.option("--multiplier", type=float, help="Growth, for EXPONENTIAL."),
            click.option(
                "--retry-delay",
                "delays",
                type=Duration(),
                multiple=True,
                help="For CUSTOM: each pause in turn.",
            ),
        )
    ):
        function = option(function)
    return function


@click.command(
    cls=ExampleCommand,
    examples=(
        'queue-operator submit send-email \'{"to": "a@example.com"}\' --delay 5m',
        "queue-operator submit resize @photo.jpg --raw --tag region=eu --wait",
        "queue-operator submit report - --key report-2030-01 < report.json",
        "queue-operator submit --file jobs.jsonl --run-id import-7",
    ),
)
@click.argument("type", required=False)
@click.argument("payload", required=False, type=Bytes())
@click.option("--raw", is_flag=True, help="The payload is bytes, not JSON.")
@_options
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="JSON lines, each a submission as the API takes it. TYPE and the options above are for "
    "lines that do not say otherwise.",
)
@click.option(
    "--run-id",
    help="With --file: makes each line's key out of this and its number, so that the same file "
    "sent again stores nothing twice.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, BATCH_JOBS),
    default=BATCH_JOBS,
    show_default=True,
    help="With --file: jobs in one request.",
)
@click.option("--wait", is_flag=True, help="Wait until the job has ended.")
@click.option(
    "--wait-timeout",
    type=Duration(),
    help="With --wait: stop waiting after so long. The job goes on.",
)
@click.option("--dry-run", is_flag=True, help="Check and show what would be sent.")
@remote("jsonl")
def submit(
    remote: Remote,
    type: str | None,
    payload: str | None,
    raw: bool,
    file: Path | None,
    run_id: str | None,
    batch_size: int,
    wait: bool,
    wait_timeout: timedelta | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Submit a job of TYPE, or many from a file.

    PAYLOAD is JSON; @FILE reads it from a file, - from standard input. With --wait the job's id is
    told at once, and the exit code is 0 if the job completed, 1 if it ended otherwise, and 3 if it
    has not ended within --wait-timeout. With --file it is 1 if a line was rejected, and
    `--output jsonl` prints what became of each line.
    """
    fields = _fields(options)
    if file is not None:
        waiting = {"wait": wait, "wait_timeout": wait_timeout}
        given = {"payload": payload, "raw": raw, **waiting, **fields}
        if wrong := [name for name in _SPECIFIC if given.get(name)]:
            raise click.UsageError(f"{', '.join(wrong)}: for one job only, not with --file")
        defaults = fields if type is None else {"type": type, **fields}
        plan = loading.Plan(remote, defaults, run_id, batch_size)
        loading.load(plan, file, dry_run=dry_run)
        return
    if type is None:
        raise click.UsageError("give TYPE, or --file")
    if wait_timeout is not None and not wait:
        raise click.UsageError(
            "--wait-timeout is for --wait; --timeout limits one execution of the job"
        )
    if run_id is not None:
        raise click.UsageError("--run-id is for --file; for one job give --key")
    submission = _submission({"type": type, **fields, **_payload(payload, raw)})
    if dry_run:
        if (refused := refusal(submission)) is not None:
            raise click.UsageError(refused[1])
        rendering.print_json(submission.document())
        return
    with remote.connected() as queue:
        result = queue.submit(submission, namespace=remote.namespace)
        if wait and result.job_id is not None:
            rendering.note(_told(result))
            ended(remote, until_ended(remote, queue, result.job_id, wait_timeout))
        else:
            _print(remote, result)


def _print(remote: Remote, result: SubmissionResult) -> None:
    if remote.output == "table":
        print(_told(result))
    else:
        print_one = rendering.print_json if remote.output == "json" else rendering.print_line
        print_one(result)


def _told(result: SubmissionResult) -> str:
    job_id = rendering.plain(result.existing_job_id or result.job_id)
    if result.existing_job_id is not None:
        return f"{job_id} is there already, stored under this key before"
    state = result.state.value if result.state else result.status
    if result.state is not Phase.DELAYED:
        return f"{job_id} {state}"
    return f"{job_id} {state}, not before {rendering.moment(result.scheduled_for)}"


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, under the names that a submission has for them."""
    backoff = {
        name: options.pop(key)
        for key, name in (
            ("backoff", "strategy"),
            ("initial_delay", "initial_delay"),
            ("max_delay", "max_delay"),
            ("multiplier", "multiplier"),
            ("delays", "delays"),
        )
    }
    fields = {name: value for name, value in options.items() if value not in (None, ())}
    if "tags" in fields:
        fields["tags"] = tag_map(fields["tags"])
    if backoff := {name: value for name, value in backoff.items() if value not in (None, ())}:
        fields["backoff"] = backoff
    return fields


def _payload(text: str | None, raw: bool) -> dict[str, Any]:
    if text is None:
        otherwise = "'' for no bytes" if raw else "null for none"
        raise click.UsageError(
            f"give PAYLOAD: a value, @FILE, - for standard input, or {otherwise}"
        )
    content = _read(text)
    if raw:
        return {"payload_bytes": content}
    try:
        return {"payload": parse_json(content)}
    except ValueError as error:
        reason = f"{error}; quote it for the shell, or give --raw to send bytes"
        raise click.BadParameter(reason, param_hint="PAYLOAD") from None


def _read(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return os.fsencode(text)
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        reason = f"{text[1:]}: {error.strerror}"
        raise click.BadParameter(reason, param_hint="PAYLOAD") from None


def _submission(fields: dict[str, Any]) -> Submission:
    try:
        return Submission(**fields)
    except ValidationError as error:
        raise click.UsageError(loading.faults(error)) from None
