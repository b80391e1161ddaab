"""`queue-operator webhooks`: who is told of the ends of jobs, and how that goes."""

import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

import click
from rich.text import Text

from queue_operator.cli import rendering
from queue_operator.cli.command import CommandGroup, ExampleCommand
from queue_operator.cli.connection import Remote, confirm, remote
from queue_operator.cli.values import JobId
from queue_operator.client import QueueClient, WebhookMessage

PENDING: Final = "PENDING"
DELIVERED: Final = "DELIVERED"
FAILED: Final = "FAILED"
_STYLES: Final = {PENDING: "yellow", DELIVERED: "green", FAILED: "red"}
_AT_ONCE: Final = 1000


@click.group(cls=CommandGroup)
def webhooks() -> None:
    """Who is told of the ends of jobs, and how that goes: list, show, redeliver, purge."""


def _choice(*states: str) -> click.Choice[str]:
    return click.Choice(list(states), case_sensitive=False)


@webhooks.command(
    name="list",
    cls=ExampleCommand,
    examples=(
        "queue-operator webhooks list --state FAILED",
        "queue-operator webhooks list --job nightly-report",
        "queue-operator webhooks list --state FAILED -o ids | head -n 10",
    ),
)
@click.option("-s", "--state", type=_choice(PENDING, DELIVERED, FAILED), help="Only in this state.")
@click.option("--job", "job_id", type=JobId(), metavar="JOB_ID", help="Only about this job.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="Most messages."
)
@remote("ids")
def list_webhooks(remote: Remote, state: str | None, job_id: str | None, limit: int) -> None:
    """List messages, newest first. What was delivered is kept for a while only."""
    with remote.connected() as queue:
        found = list(
            islice(
                queue.webhooks_all(state=state, job_id=job_id, namespace=remote.namespace),
                limit + 1,
            )
        )
    has_more, found = len(found) > limit, found[:limit]
    if remote.output == "json":
        rendering.print_json({"messages": [rendering.fields_of(one) for one in found]})
    elif remote.output == "ids":
        for one in found:
            print(one.id)
    else:
        _table(found)
    if has_more:
        rendering.note(f"the newest {limit:,}; --limit shows more")


@webhooks.command(
    cls=ExampleCommand,
    examples=("queue-operator webhooks show msg_4711_0192f1d29b017cc39c3e0d6f9a1b2c3d",),
)
@click.argument("message_id")
@remote()
def show(remote: Remote, message_id: str) -> None:
    """Show a message: who is told of what, how often it was tried, and what came of it."""
    with remote.connected() as queue:
        found = queue.webhook(message_id, namespace=remote.namespace)
    if remote.output == "json":
        rendering.print_json(found)
        return
    rendering.show(
        rendering.facts(
            [
                ("message", found.id),
                ("namespace", found.namespace),
                ("job", found.job_id),
                ("type", found.type),
                ("job ended", rendering.moment(found.finalized_at)),
                ("as", rendering.state(found.job_state)),
                ("attempt", found.attempt),
                ("told", found.url),
                ("state", _state(found)),
                ("tries", found.tries),
                ("next try", rendering.moment(found.next_at)),
                ("last try", rendering.moment(found.last_at)),
                ("answer", found.last_status),
                ("error", found.last_error),
            ]
        )
    )


def _selecting(*states: str) -> Callable[[Any], Any]:
    """Gives a command messages by ids or by state."""

    def decorate(function: Any) -> Any:
        options = (
            click.argument("ids", nargs=-1, metavar="[MESSAGE_ID...]"),
            click.option("-s", "--state", type=_choice(*states), help="All in this state."),
            click.option("--dry-run", is_flag=True, help="Change nothing, tell what would change."),
            click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        )
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _check(ids: Iterable[str], state: str | None) -> None:
    if bool(tuple(ids)) == (state is not None):
        raise click.UsageError("give ids or --state, one of the two")


@webhooks.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator webhooks redeliver msg_4711_0192f1d29b017cc39c3e0d6f9a1b2c3d",
        "queue-operator webhooks redeliver --state FAILED --dry-run",
        "queue-operator webhooks redeliver --state FAILED --yes",
    ),
)
@_selecting(FAILED, DELIVERED)
@remote()
def redeliver(
    remote: Remote, ids: tuple[str, ...], state: str | None, dry_run: bool, yes: bool
) -> None:
    """Tell messages once more that are told no more, under the same ids, beginning now.

    One that is PENDING is told anyway. The exit code is 1 if a message that was named is not
    there, or is not told once more.
    """
    _check(ids, state)
    if state and not (dry_run or yes):
        _confirm(f"This tells everything once more that is {state}. Go on?")

    def change(queue: QueueClient, some: list[str] | None) -> tuple[int, bool]:
        told = queue.redeliver_webhooks(
            some, state=state, dry_run=dry_run, namespace=remote.namespace
        )
        # What was delivered soon is again: to ask for more would never end.
        return told.redelivered, told.has_more and state == FAILED

    _change(remote, "redelivered", change, ids, dry_run)


@webhooks.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator webhooks purge msg_4711_0192f1d29b017cc39c3e0d6f9a1b2c3d",
        "queue-operator webhooks purge --state FAILED --yes",
    ),
)
@_selecting(FAILED, DELIVERED, PENDING)
@remote()
def purge(
    remote: Remote, ids: tuple[str, ...], state: str | None, dry_run: bool, yes: bool
) -> None:
    """Delete messages. One that is PENDING is never told then.

    The exit code is 1 if a message that was named is not there.
    """
    _check(ids, state)
    if state and not (dry_run or yes):
        _confirm(f"This deletes every message that is {state}. Go on?")

    def change(queue: QueueClient, some: list[str] | None) -> tuple[int, bool]:
        told = queue.purge_webhooks(some, state=state, dry_run=dry_run, namespace=remote.namespace)
        return told.purged, told.has_more

    _change(remote, "purged", change, ids, dry_run)


def _confirm(question: str) -> None:
    confirm(question, "give --yes where nobody can be asked")


def _change(
    remote: Remote,
    done: str,
    change: Callable[[QueueClient, list[str] | None], tuple[int, bool]],
    ids: tuple[str, ...],
    dry_run: bool,
) -> None:
    count = 0
    chunks: list[list[str] | None] = [
        list(ids[at : at + _AT_ONCE]) for at in range(0, len(ids), _AT_ONCE)
    ]
    with remote.connected() as queue:
        for some in chunks or [None]:
            more = True
            while more:
                changed, more = change(queue, some)
                count += changed
                more = more and changed > 0 and not dry_run
    if remote.output == "json":
        rendering.print_json({done: count, "dry_run": dry_run})
    else:
        would = "would be " if dry_run else ""
        print(f"{rendering.count(count, 'message')} {would}{done}")
    left = len(set(ids)) - count
    if left > 0:
        why = (
            "or told anyway, as PENDING is" if done == "redelivered" else "or not of this namespace"
        )
        rendering.note(
            f"{rendering.count(left, 'message')} not there, {why}: `queue-operator webhooks show "
            "ID` tells; the ids are those of `queue-operator webhooks list`"
        )
        sys.exit(1)


def _state(one: WebhookMessage) -> Text:
    return Text(one.state, style=_STYLES.get(one.state, ""))


def summary(one: WebhookMessage) -> str:
    """How it went, in a line."""
    said = f": {_said(one)}" if one.state != DELIVERED and _said(one) else ""
    again = f", again {rendering.age(one.next_at)}" if one.next_at and one.tries else ""
    tries = "1 try" if one.tries == 1 else f"{one.tries} tries"
    return f"{one.state} after {tries}{said}{again}"


def _said(one: WebhookMessage) -> str:
    return one.last_error or (str(one.last_status) if one.last_status else "")


def _table(found: Iterable[WebhookMessage]) -> None:
    made = rendering.table(
        *("ID", "JOB", "ENDED", "STATE", "TRIES#", "NEXT", "ANSWER", "URL"),
        expendable=("NEXT", "ENDED", "TRIES", "URL"),
        elastic=("JOB", "ANSWER", "URL"),
    )
    for one in found:
        made.add_row(
            rendering.plain(one.id),
            rendering.plain(one.job_id),
            rendering.state(one.job_state),
            _state(one),
            rendering.number(one.tries),
            rendering.age(one.next_at),
            rendering.plain(_said(one)),
            rendering.plain(one.url),
        )
    rendering.print_rows(made, "no messages")
