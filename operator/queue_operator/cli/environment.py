"""The settings of the environment, and how a command says that it cannot go on."""

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

from queue_operator.settings import Settings

# Kinds of faults of values that have parts, which a variable can hold as JSON only.
_STRUCTURED: Final = {"tuple_type": '["a", "b"]', "dict_type": '{"name": "value"}'}


class _Lenient(EnvSettingsSource):
    """Hands on what is no JSON, so that it is one fault among the others and has a name."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


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
    try:
        return EnvironmentSettings()
    except ValidationError as error:
        faults = [_fault(fault["loc"], fault["type"], fault["msg"]) for fault in error.errors()]
        fail("\n".join(["the settings are wrong:", *faults]))


def fail(message: str) -> NoReturn:
    """Ends the process with exit code 1 and one message."""
    click.echo(f"error: {message}", err=True)
    sys.exit(1)


def _fault(location: tuple[int | str, ...], kind: str, message: str) -> str:
    variable = "QUEUE_OPERATOR_" + "__".join(str(part).upper() for part in location)
    if kind == "extra_forbidden":
        message = "there is no such setting; docs/reference/settings.md names all"
    if kind in _STRUCTURED:
        message += f", written as JSON: {_STRUCTURED[kind]}"
    return f"  {variable}: {message}"
