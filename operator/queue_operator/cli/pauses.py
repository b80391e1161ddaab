"""`queue-operator pause`, `suspend` and `resume`."""

import difflib
import sys
from collections.abc import Callable, Sequence

import click

from queue_operator.cli import rendering
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import Remote, confirm, remote
from queue_operator.cli.values import JobId
from queue_operator.client import Pause, QueueClient, SuspensionResult
from queue_operator.domain.errors import Forbidden, InvalidArgument, InvalidTransition, JobNotFound


@click.command(
    cls=ExampleCommand,
    examples=(
        'queue-operator pause send-email --reason "mail server is down, INC-42"',
        "queue-operator pause --namespace shop --yes",
        "queue-operator pause --list",
    ),
)
@click.argument("type", required=False)
@click.option("--reason", default="", help="Why; `why` tells it for each job.")
@click.option("--list", "listed", is_flag=True, help="Show what is paused, and pause nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a whole namespace is paused.")
@remote()
def pause(remote: Remote, type: str | None, reason: str, listed: bool, yes: bool) -> None:
    """Start no more jobs of TYPE, or of the whole namespace; running jobs go on."""
    if listed and (type or reason):
        raise click.UsageError("give --list alone")
    if not (type or listed or yes):
        _confirm(remote)
    with remote.connected() as queue:
        if listed:
            _print(remote, queue.pauses(namespace=remote.namespace))
            return
        notes = _notes(remote, queue, type)
        made = queue.pause(type, reason=reason, namespace=remote.namespace)
    for note in notes:
        rendering.note(note)
    if remote.output == "json":
        rendering.print_json(made)
    else:
        print(f"{_what(made)} is paused; `{_resume(made)}` ends that")


def _notes(remote: Remote, queue: QueueClient, type: str | None) -> list[str]:
    """What somebody may not expect of a pause: it replaces another, or its type is mistyped. As far
    as the caller may look.
    """
    try:
        held = [one for one in queue.pauses(namespace=remote.namespace) if one.type == (type or "")]
        workers = queue.workers(namespace=remote.namespace) if type else ()
    except Forbidden:
        return []
    notes = [f"it replaces the pause{_by(one)}: {one.reason or 'no reason given'}" for one in held]
    known = {one for worker in workers for one in worker.types}
    if workers and type not in known and all(worker.types for worker in workers):
        near = difflib.get_close_matches(type or "", known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        notes.append(f"no connected worker handles {type}{hint}")
    return notes


def _by(held: Pause) -> str:
    return f" by {held.by}" if held.by else ""


@click.command(
    cls=ExampleCommand,
    examples=("queue-operator suspend 01a2202b-60ba-7527-8384-af65995ae3ce",),
)
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB_ID...", type=JobId())
@remote()
def suspend(remote: Remote, job_ids: tuple[str, ...]) -> None:
    """Start no attempt of these jobs until `resume --job`; one that runs goes on.

    A job of a QueueJob is suspended by its spec.suspend instead. Of several jobs each that can be
    is suspended; the exit code is 1 where one was refused.
    """
    with remote.connected() as queue:
        _each(remote, job_ids, queue.suspend)


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator resume send-email",
        "queue-operator resume --all",
        "queue-operator resume --job 01a2202b-60ba-7527-8384-af65995ae3ce",
    ),
)
@click.argument("type", required=False)
@click.option("-a", "--all", "everything", is_flag=True, help="End every pause of the namespace.")
@click.option(
    "--job",
    "job_ids",
    multiple=True,
    metavar="JOB_ID",
    type=JobId(),
    help="Let a suspended job run, and end no pause. May be repeated.",
)
@remote()
def resume(remote: Remote, type: str | None, everything: bool, job_ids: tuple[str, ...]) -> None:
    """Start jobs of TYPE again, or those of the whole namespace.

    It ends exactly the pause that was made: a type that was paused by itself stays so when the
    namespace is resumed. The exit code is 1 where there was no such pause.
    """
    if type and everything:
        raise click.UsageError("give TYPE or --all, not both")
    if job_ids:
        if type or everything:
            raise click.UsageError("give --job alone")
        with remote.connected() as queue:
            _each(remote, job_ids, queue.resume_job)
        return
    with remote.connected() as queue:
        there = queue.pauses(namespace=remote.namespace)
        wanted = [one.type for one in there] if everything else [type or ""]
        ended = [queue.resume(one or None, namespace=remote.namespace) for one in wanted]
    if remote.output == "json":
        rendering.print_json({"resumed": any(ended)})
    elif any(ended):
        names = ", ".join(rendering.plain(one) or "the namespace" for one in wanted)
        print(f"resumed: {names}")
    else:
        rendering.note(_nothing(there))
    if not any(ended):
        sys.exit(1)


def _each(remote: Remote, job_ids: Sequence[str], change: Callable[..., SuspensionResult]) -> None:
    wanted = dict.fromkeys(job_ids)
    refused = False
    for job_id in wanted:
        try:
            told = change(job_id, namespace=remote.namespace)
        except (InvalidArgument, InvalidTransition, JobNotFound) as error:
            if len(wanted) == 1:
                raise
            # It is no reason to leave the others as they are.
            remote.refused(error).show()
            refused = True
            continue
        if remote.output == "json":
            rendering.print_json(told)
        else:
            print(rendering.plain(f"{told.job_id}: {told.message}"))
    if refused:
        sys.exit(1)


def _confirm(remote: Remote) -> None:
    where = f"namespace {remote.namespace}" if remote.namespace else "the whole namespace"
    confirm(f"This pauses {where}. Go on?", f"this pauses {where}: give a TYPE, or --yes")


def _nothing(there: Sequence[Pause]) -> str:
    if not there:
        return "nothing is paused"
    return "there is no such pause; paused: " + ", ".join(_what(one) for one in there)


def _what(pause: Pause) -> str:
    if pause.type:
        return rendering.plain(f"type {pause.type} of namespace {pause.namespace}")
    return rendering.plain(f"namespace {pause.namespace}")


def _resume(pause: Pause) -> str:
    name = f" {pause.type}" if pause.type else ""
    return rendering.plain(f"queue-operator resume{name} --namespace {pause.namespace}")


def _print(remote: Remote, there: Sequence[Pause]) -> None:
    if remote.output == "json":
        rendering.print_json({"pauses": [rendering.fields_of(one) for one in there]})
        return
    made = rendering.table(
        *("NAMESPACE", "TYPE", "SINCE", "BY", "REASON"),
        expendable=("BY",),
        elastic=("NAMESPACE", "TYPE", "REASON"),
    )
    for one in there:
        made.add_row(
            rendering.plain(one.namespace),
            rendering.plain(one.type) or "(all)",
            rendering.moment(one.since),
            rendering.plain(one.by),
            rendering.plain(one.reason),
        )
    rendering.print_rows(made, "nothing is paused")
