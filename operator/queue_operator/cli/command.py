"""A command whose help ends with examples, and which tells programs in JSON what is typed wrong."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import IO, Any, Final

import click

_BOLD: Final = frozenset({"--all", "--force", "--yes"})
"""Options that nobody is led to by a mistake."""
_FOR_PROGRAMS: Final = ("json", "jsonl", "ids")


class UsageFault(click.ClickException):
    """A usage error for programs."""

    exit_code = click.UsageError.exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        told = {"code": "USAGE", "message": self.message, "hint": "", "request_id": None}
        click.echo(json.dumps({"error": told}), file=file, err=True)


class ExampleCommand(click.Command):
    """`examples` are printed as they are, each on a line of its own."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, after the options."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; what follows is told as JSON where that is wanted."""
        with _faults(is_json=_wants_json(args)):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Likewise."""
        with _faults(is_json=ctx.params.get("output") in _FOR_PROGRAMS):
            return super().invoke(ctx)


def _wants_json(args: Sequence[str]) -> bool:
    """Before the options are known: they may be what is wrong."""
    given = [value for option, value in pairwise(args) if option in ("-o", "--output")]
    joined = [f"{option}{kind}" for option in ("--output=", "-o") for kind in _FOR_PROGRAMS]
    return any(value in _FOR_PROGRAMS for value in given) or any(arg in joined for arg in args)


@contextmanager
def _faults(*, is_json: bool) -> Iterator[None]:
    try:
        yield
    except click.NoSuchOption as error:
        kept = [name for name in error.possibilities or () if name not in _BOLD]
        told = click.NoSuchOption(error.option_name, error.message, kept, error.ctx)
        raise (UsageFault(told.format_message()) if is_json else told) from None
    except click.UsageError as error:
        if not is_json:
            raise
        raise UsageFault(error.format_message()) from error
