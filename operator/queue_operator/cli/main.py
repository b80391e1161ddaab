"""The command `queue-operator`."""

import importlib
import io
import sys
from typing import Any, Final

import click
from click.exceptions import NoSuchCommand

from queue_operator import __version__

# Commands are imported when they are called: an image holds only what the server needs,
# a worker's machine only what the worker needs.
_SERVER: Final = {
    "serve": ("queue_operator.cli.serve", "serve", "Run the operator: controller, REST, gRPC."),
    "migrate": ("queue_operator.cli.migrate", "migrate", "Bring the database schema up to date."),
    "pipeline": ("queue_operator.cli.pipeline", "pipeline", "Events to a lake and rollups."),
    "dev": ("queue_operator.cli.dev", "dev", "A Kubernetes cluster on this machine."),
}
_JOBS: Final = {
    "submit": ("queue_operator.cli.submit", "submit", "Submit a job, or a file of them."),
    "get": ("queue_operator.cli.get", "get", "Show a job; wait for it, or watch it."),
    "wait": ("queue_operator.cli.watch", "wait", "Wait until jobs have ended."),
    "watch": ("queue_operator.cli.watch", "watch", "Print what happens to jobs, as it does."),
    "list": ("queue_operator.cli.find", "list_jobs", "List jobs."),
    "stats": ("queue_operator.cli.stats", "stats", "Count jobs, show rates and latencies."),
    "cancel": ("queue_operator.cli.change", "cancel", "Cancel jobs, by id or all that match."),
    "retry": ("queue_operator.cli.change", "retry", "Run failed jobs again."),
    "failures": ("queue_operator.cli.find", "failures", "List failed jobs, and why they did."),
    "logs": ("queue_operator.cli.logs", "logs", "Show what a job logged."),
    "why": ("queue_operator.cli.get", "why", "Tell why a job does not run."),
    "top": ("queue_operator.cli.stats", "top", "Watch the queue."),
    "workers": ("queue_operator.cli.workers", "workers", "List workers, and what they handle."),
    "pause": ("queue_operator.cli.pauses", "pause", "Start no more jobs of a type."),
    "resume": ("queue_operator.cli.pauses", "resume", "Start them again, or suspended jobs."),
    "suspend": ("queue_operator.cli.pauses", "suspend", "Start no more attempts of jobs."),
    "webhooks": (
        "queue_operator.cli.webhooks",
        "webhooks",
        "Who is told of ends, and how.",
    ),
    "delete": ("queue_operator.cli.change", "delete", "Delete jobs that have ended."),
}
_COMMANDS: Final = {**_JOBS, **_SERVER}


class _LazyGroup(click.Group):
    def main(self, *args: Any, **extra: Any) -> Any:
        """As click does; what the terminal cannot hold is written as its code."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as missing:
            raise click.ClickException(
                f"`queue-operator {cmd_name}` needs the package {missing.name!r}: "
                f"install 'queue-operator[{_extra(cmd_name)}]'"
            ) from missing
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, which does not know commands that are imported when they are called."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as wrong:
            raise NoSuchCommand(wrong.command_name, possibilities=_COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in (("Jobs, over REST", _JOBS), ("The server", _SERVER)):
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, _, text) in commands.items()])


def _extra(name: str) -> str:
    """The extra of the package that brings what a command needs."""
    if name in _JOBS:
        return "client"
    return name if name in ("pipeline", "dev") else "server"


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="queue-operator")
def main() -> None:
    """A durable job queue for Kubernetes."""


if __name__ == "__main__":
    main()
