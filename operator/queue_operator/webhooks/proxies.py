"""The proxies of the environment: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in capitals or not."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.request import getproxies_environment

from yarl import URL

from queue_operator.domain.hosts import is_within


@dataclass(frozen=True, slots=True)
class Proxy:
    """`url` is without credentials, so that it can be told."""

    url: URL
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Proxies:
    """By scheme of what is asked for; `no` says what is asked without any."""

    by_scheme: Mapping[str, Proxy]
    no: str = ""

    @classmethod
    def none(cls) -> Self:
        return cls({})

    @classmethod
    def of_environment(cls) -> Self:
        """Raises ValueError for a proxy that is no URL of http or https."""
        given = getproxies_environment()
        schemes = [scheme for scheme in ("http", "https") if given.get(scheme)]
        return cls({one: _proxy(one, given[one]) for one in schemes}, given.get("no", ""))

    def of(self, url: URL) -> Proxy | None:
        """Through which one `url` is asked for."""
        host = url.raw_host or ""
        if self._is_excepted(host, url.port or 0):
            return None
        return self.by_scheme.get(url.scheme)

    def _is_excepted(self, host: str, port: int) -> bool:
        return any(
            _names(entry.strip().lower(), host.lower(), port) for entry in self.no.split(",")
        )


def _names(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY has this host: by its name or an end of it, perhaps with a port,
    by a network, or by `*`.
    """
    if entry == "*" or is_within(host, entry.strip("[]")):
        return True
    name, _, only = entry.rpartition(":") if entry.rpartition(":")[2].isdigit() else (entry, "", "")
    name = name.removeprefix("*").removeprefix(".")
    if not name or (only and int(only) != port):
        return False
    plain = host.removesuffix(".")
    return plain == name or plain.endswith(f".{name}")


def _proxy(scheme: str, text: str) -> Proxy:
    try:
        url = URL(text if "://" in text else f"http://{text}")
        user, password = url.user, url.password
        shown = url.with_user(None)
    except ValueError:
        raise ValueError(f"{scheme.upper()}_PROXY is no URL") from None
    if shown.scheme not in ("http", "https") or not shown.host:
        raise ValueError(f"{scheme.upper()}_PROXY must be the URL of an HTTP proxy")
    credentials = f"{user}:{password or ''}".encode()
    return Proxy(shown, f"Basic {b64encode(credentials).decode()}" if user else "")
