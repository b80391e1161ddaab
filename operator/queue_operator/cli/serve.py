"""`queue-operator serve`."""

import asyncio
import sys

import click
import uvloop

from queue_operator.bootstrap import configure_logging
from queue_operator.bootstrap import serve as serve_until_stopped
from queue_operator.cli.environment import fail, read_settings
from queue_operator.collector import collect_seldom
from queue_operator.domain.errors import QueueError
from queue_operator.settings import Settings


@click.command()
def serve() -> None:
    """Run the operator: the controller, the REST door, the gRPC worker plane, metrics, probes.

    Settings are read from the environment, see docs/reference/settings.md; the one that is
    always needed is QUEUE_OPERATOR_DATABASE__DSN. Stops on SIGTERM and SIGINT.
    """
    settings = read_settings()
    configure_logging(settings.logs)
    collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(_run(runner, settings))


def _run(runner: asyncio.Runner, settings: Settings) -> int:
    try:
        return runner.run(serve_until_stopped(settings))
    except (QueueError, OSError) as error:
        fail(str(error))
