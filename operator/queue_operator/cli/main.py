"""The command `queue-operator`."""

import importlib
from typing import Final

import click

from queue_operator import __version__

# Commands are imported when they are called: an image holds only what the server needs,
# a worker's machine only what the worker needs.
_COMMANDS: Final = {
    "serve": ("queue_operator.cli.serve", "serve", "Run the operator: controller, REST, gRPC."),
    "migrate": ("queue_operator.cli.migrate", "migrate", "Bring the database schema up to date."),
    "pipeline": ("queue_operator.cli.pipeline", "pipeline", "Events to a lake and rollups."),
    "dev": ("queue_operator.cli.dev", "dev", "A Kubernetes cluster on this machine."),
}


class _LazyGroup(click.Group):
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
                f"`queue-operator {cmd_name}` needs the package {missing.name!r}: install "
                "queue-operator with the extra it belongs to (server, pipeline or dev)"
            ) from missing
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="queue-operator")
def main() -> None:
    """A durable job queue for Kubernetes."""


if __name__ == "__main__":
    main()
