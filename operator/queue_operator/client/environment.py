"""What the environment says of the way to a server: proxies and authorities."""

import importlib.util
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

# `proxy_bypass`, which is what typeshed knows, asks the system on macOS and takes no proxies there.
from urllib.request import (  # type: ignore[attr-defined]
    getproxies_environment,
    proxy_bypass_environment,
)

import httpx

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.hosts import is_within

_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_AUTHORITIES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class EnvironmentProxy:
    """The proxy of one variable."""

    variable: str
    url: httpx.URL

    @classmethod
    def for_url(cls, target: httpx.URL) -> Self | None:
        """The one by which `target` is reached, None where there is none. Raises InvalidArgument,
        which names the variable, for one that cannot be used.
        """
        proxies = getproxies_environment()
        forms = (target.host, target.netloc.decode("ascii"))
        if any(proxy_bypass_environment(form, proxies) for form in forms):
            return None
        # Python knows no networks there, which is how clusters name their own addresses.
        excepted = proxies.get("no", "").split(",")
        if any(is_within(target.host, entry.strip()) for entry in excepted):
            return None
        scheme = next((one for one in (target.scheme, "all") if proxies.get(one)), None)
        if scheme is None:
            return None
        # The lower-case one goes before the other.
        names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
        variable = next((name for name in names if os.environ.get(name)), names[0])
        return cls(variable, _usable(variable, proxies[scheme], target.host))

    def __str__(self) -> str:
        """Without the password that the address may hold."""
        return f"{self.variable} ({self.url.copy_with(userinfo=b'')})"


def _usable(variable: str, given: str, host: str) -> httpx.URL:
    otherwise = f"correct it, unset it, or name {host} in NO_PROXY"
    try:
        url = httpx.URL(given if "://" in given else f"http://{given}")
    except httpx.InvalidURL:
        raise InvalidArgument(variable, f"is no address of a proxy: {otherwise}") from None
    if url.scheme not in _SCHEMES or not url.host:
        raise InvalidArgument(variable, f"is no proxy of http, https or socks5: {otherwise}")
    if url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        shown = url.copy_with(userinfo=b"")
        raise InvalidArgument(
            variable,
            f"{shown} is a SOCKS proxy, which needs the package socksio: run `pip install "
            f"'httpx[socks]'`, unset the variable, or name {host} in NO_PROXY",
        )
    return url


File = Path | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files of one who calls over https. Without a `ca_file` those of the environment and of
    the system are believed; `certificate_file` and `key_file` are shown to a server that asks.
    """

    ca_file: File = None
    certificate_file: File = None
    key_file: File = None

    def context(self) -> ssl.SSLContext:
        """Raises InvalidArgument, which names the argument or the variable."""
        context = self._believing()
        if (self.certificate_file is None) != (self.key_file is None):
            missing = "certificate_file" if self.certificate_file is None else "key_file"
            raise InvalidArgument(missing, "give certificate_file and key_file, or neither")
        if self.certificate_file is not None and self.key_file is not None:
            try:
                context.load_cert_chain(self.certificate_file, self.key_file)
            except OSError as error:
                named = f"{self.certificate_file}, {self.key_file}"
                reason = f"{named}: {error.strerror or error}"
                raise InvalidArgument("certificate_file", reason) from error
        return context

    def _believing(self) -> ssl.SSLContext:
        if self.ca_file is None:
            return authorities()
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            reason = f"{self.ca_file}: {error.strerror or error}"
            raise InvalidArgument("ca_file", reason) from error


def authorities() -> ssl.SSLContext:
    """Whose certificates are believed. Raises InvalidArgument, which names the variable."""
    try:
        return httpx.create_ssl_context(trust_env=True)
    except OSError as error:
        variable = next((name for name in _AUTHORITIES if os.environ.get(name)), "")
        if not variable:
            raise
        reason = f"{os.environ[variable]}: {error.strerror or error}"
        raise InvalidArgument(variable, reason) from error
