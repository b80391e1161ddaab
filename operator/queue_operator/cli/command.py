"""Commands: their arguments are text, their help ends with examples, and programs are told in JSON
what is typed wrong.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import IO, Any, Final

import click

_BOLD: Final = frozenset({"--all", "--force", "--yes"})
"""Options that nobody is led to by a mistake."""
_FOR_PROGRAMS: Final = ("json", "jsonl", "ids")


class Bytes(click.ParamType[str]):
    """An argument that may be any bytes; those that are no UTF-8 are as `os.fsdecode` has them."""

    name = "text"


class Command(click.Command):
    """A shell hands on any bytes; what is to be text is refused here where it is none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; raises BadParameter for what is no text."""
        rest = super().parse_args(ctx, args)
        for param in self.get_params(ctx):
            if not isinstance(param.type, Bytes | click.Path):
                _check_text(ctx, param, ctx.params.get(param.name or ""))
        return rest


class CommandGroup(click.Group):
    """Its commands are of this kind."""

    command_class = Command


def _check_text(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if isinstance(value, tuple | list):
        for one in value:
            _check_text(ctx, param, one)
    elif isinstance(value, str) and not is_text(value):
        shown = os.fsencode(value).decode("utf-8", "backslashreplace")
        raise click.BadParameter(f"is not UTF-8: {shown}", ctx, param)


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: bytes of a shell that are none become halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class UsageFault(click.ClickException):
    """A usage error for programs."""

    exit_code = click.UsageError.exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        told = {"code": "USAGE", "message": self.message, "hint": "", "request_id": None}
        click.echo(json.dumps({"error": told}), file=file, err=True)


class ExampleCommand(Command):
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
