"""The settings of the environment, and how a command says that it cannot go on."""

import json
import os
import sys
from typing import Any, Final, NoReturn

import click
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
)

from queue_operator.cli.command import is_text
from queue_operator.settings import Settings

_PREFIX: Final = "QUEUE_OPERATOR_"
_WRONG: Final = "the settings are wrong:"
# Kinds of faults of values that have parts, which a variable can hold as JSON only.
_STRUCTURED: Final = {"tuple_type": '["a", "b"]', "dict_type": '{"name": "value"}'}


class _GivenTwice(str):
    """A key of a JSON object that is there twice, in place of the object."""


class _Lenient(EnvSettingsSource):
    """Hands on what is no JSON, so that it is one fault among the others and has a name; likewise
    a map that names a key twice, of which Python's reader keeps the last.
    """

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return json.loads(value, object_pairs_hook=_once_each)
        except _Twice as twice:
            return _GivenTwice(twice.key)
        except ValueError:
            return value


class _Twice(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twice(key)
        found[key] = value
    return found


class EnvironmentSettings(Settings):
    """The settings as they stand in the environment."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Lenient(settings_cls)


def read_settings() -> Settings:
    """The settings of the environment; every fault is told at once, and ends the process."""
    broken = [
        f"  {name}: is not UTF-8"
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIX) and not is_text(value)
    ]
    if broken:
        fail("\n".join([_WRONG, *broken]))
    try:
        return EnvironmentSettings()
    except ValidationError as error:
        faults = [
            _fault(fault["loc"], fault["type"], fault["msg"], fault["input"])
            for fault in error.errors()
        ]
        fail("\n".join([_WRONG, *faults]))


def fail(message: str) -> NoReturn:
    """Ends the process with exit code 1 and one message."""
    click.echo(f"error: {message}", err=True)
    sys.exit(1)


def _fault(location: tuple[int | str, ...], kind: str, message: str, given: object) -> str:
    variable = _PREFIX + "__".join(str(part).upper() for part in location)
    message = message.removeprefix("Value error, ")
    if kind == "extra_forbidden":
        message = "there is no such setting; docs/reference/settings.md names all"
    if isinstance(given, _GivenTwice):
        message = f"{str(given)!r} is given twice: keep one of the two"
    elif kind in _STRUCTURED:
        message += f", written as JSON: {_STRUCTURED[kind]}"
    return f"  {variable}: {message}"
