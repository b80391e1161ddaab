"""`queue-operator migrate`."""

import asyncio
import json

import click

from queue_operator.backends.postgres import migrate as apply_migrations
from queue_operator.backends.postgres.migrate import LOCK_TIMEOUT_S, PATIENCE_S
from queue_operator.cli.command import Command
from queue_operator.cli.environment import fail, read_settings
from queue_operator.domain.errors import QueueError

_SECONDS = click.FloatRange(min=0.001, max=86_400)


@click.command(cls=Command)
@click.option("--dsn", help="Address of the database; default: QUEUE_OPERATOR_DATABASE__DSN.")
@click.option("--grant-to", metavar="ROLE", help="Let this role run the queue on the schema.")
@click.option(
    "--lock-timeout",
    type=_SECONDS,
    default=LOCK_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait for a lock, and so to hold up others, before giving way.",
)
@click.option(
    "--patience",
    type=_SECONDS,
    default=PATIENCE_S,
    show_default=True,
    help="Seconds after which to give up trying.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def migrate(
    dsn: str | None, grant_to: str | None, lock_timeout: float, patience: float, output: str
) -> None:
    """Bring the database schema up to date. Safe to run from several replicas at once, and while
    the queue runs; what goes on is told on standard error.
    """
    address = _address(dsn)
    try:
        applied = asyncio.run(
            apply_migrations(
                address,
                grant_to=grant_to,
                lock_timeout_s=lock_timeout,
                patience_s=patience,
                say=lambda text: click.echo(text, err=True),
            )
        )
    except QueueError as error:
        fail(str(error))
    if output == "json":
        click.echo(json.dumps({"applied": applied, "granted_to": grant_to}))
    else:
        click.echo(_summary(applied, grant_to))


def _address(given: str | None) -> str:
    """Never the default: a forgotten address would change whatever database is at hand."""
    database = read_settings().database
    if given is None and "dsn" in database.model_fields_set:
        given = database.dsn.get_secret_value()
    if not given:
        fail("no database address: give --dsn, or set QUEUE_OPERATOR_DATABASE__DSN")
    return given


def _summary(applied: list[str], grant_to: str | None) -> str:
    done = f"applied: {', '.join(applied)}" if applied else "the schema is up to date"
    return f"{done}; granted to {grant_to}" if grant_to else done
