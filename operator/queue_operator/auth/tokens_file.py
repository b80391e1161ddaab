"""Static tokens in a file, which is read again when it changes."""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from queue_operator.auth.protocol import Identity
from queue_operator.auth.scopes import EVERY_NAMESPACE, Scope
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import DEFAULT_NAMESPACE

log = logging.getLogger(__name__)

SETTING: Final = "auth.tokens_file"
LOOK_EVERY_S: Final = 1.0
"""How often it is looked whether the file has changed."""

_Name = Annotated[str, Field(min_length=1)]


class _Entry(BaseModel):
    """One caller. Its first namespace is the one that a call means that names none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    token: SecretStr | None = Field(None, min_length=1)
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    scopes: list[Scope] = Field(min_length=1)
    namespaces: list[_Name] = Field(default=[DEFAULT_NAMESPACE], min_length=1)

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError("give either token or sha256")
        return self

    def digest(self) -> bytes:
        if self.token is None:
            return bytes.fromhex(self.sha256 or "")
        return digest_of(self.token.get_secret_value())

    def identity(self) -> Identity:
        named = [one for one in self.namespaces if one != EVERY_NAMESPACE]
        everywhere = len(named) < len(self.namespaces)
        return Identity(
            name=self.name,
            namespace=named[0] if named else DEFAULT_NAMESPACE,
            admin=everywhere and Scope.ADMIN in self.scopes,
            scopes=frozenset(self.scopes),
            namespaces=frozenset(self.namespaces),
        )


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: list[_Entry]


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class _GivenTwice(yaml.YAMLError):
    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _OnceEach(yaml.SafeLoader):
    """Takes no mapping that names a key twice, of which YAML's own reader keeps the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            # What is no scalar can be no key.
            named = (key.tag, str(key.value))
            if named in seen:
                raise _GivenTwice(key.start_mark.line + 1)
            seen.add(named)
        return node


class TokensFile:
    """The callers of the file by the digest of their token. A change that makes the file
    unusable is logged, and the callers stay as they were.

    Raises InvalidArgument when the file cannot be used at the start.
    """

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._stamp = _stamp(path)
        self._callers = self._read()
        self._looked_at = monotonic()

    def callers(self) -> Mapping[bytes, Identity]:
        """As the file is now, or was a second ago."""
        now = self._monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self._renew()
        return self._callers

    def _renew(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._callers = self._read()
        except InvalidArgument as error:
            if isinstance(error.__cause__, OSError):
                self._stamp = None  # It may be readable again without having changed.
            log.error("the static tokens stay as they were: %s", error)
        else:
            log.info("the static tokens were read again from %s", self._path)

    def _read(self) -> Mapping[bytes, Identity]:
        try:
            # The loader is PyYAML's safe one, and takes less than that.
            given = yaml.load(self._path.read_text("utf-8"), _OnceEach)  # noqa: S506
            document = _Document.model_validate(given)
        except OSError as error:
            raise InvalidArgument(SETTING, f"{self._path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise InvalidArgument(SETTING, f"{self._path} is not UTF-8") from None
        except _GivenTwice as twice:
            reason = f"gives a key twice at line {twice.line}: keep one of the two"
            raise InvalidArgument(SETTING, f"{self._path} {reason}") from None
        except yaml.YAMLError as error:
            # Its text quotes the file, and so its tokens.
            mark = getattr(error, "problem_mark", None)
            line = f" at line {mark.line + 1}" if mark is not None else ""
            raise InvalidArgument(SETTING, f"{self._path} is no YAML{line}") from None
        except ValidationError as error:
            raise InvalidArgument(SETTING, f"{self._path}: {_told(error)}") from None
        except (ValueError, LookupError, AttributeError, RecursionError):
            # A date that does not exist, a tag that does not fit, lists nested too deep.
            raise InvalidArgument(
                SETTING, f"{self._path} has a value that cannot be read"
            ) from None
        return _by_digest(self._path, document)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes when the file is written anew or replaced; None without it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _by_digest(path: Path, document: _Document) -> Mapping[bytes, Identity]:
    entries = document.tokens
    if not entries:
        raise InvalidArgument(SETTING, f"{path} has no tokens")
    callers = {entry.digest(): entry.identity() for entry in entries}
    if len(callers) < len(entries) or len({entry.name for entry in entries}) < len(entries):
        raise InvalidArgument(SETTING, f"{path} has a name or a token twice")
    return callers


def _told(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
