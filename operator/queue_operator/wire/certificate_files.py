"""Certificates as files that are replaced while they are in use."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self


class TlsSettings(Protocol):
    """What a port's settings say of TLS; without a certificate it speaks none."""

    @property
    def certificate_file(self) -> Path | None: ...

    @property
    def key_file(self) -> Path | None: ...

    @property
    def client_ca_file(self) -> Path | None: ...


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """PEM files of the server. With a `client_ca`, callers must show a certificate of it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def of(cls, settings: TlsSettings) -> Self | None:
        """None where the settings name no certificate."""
        if settings.certificate_file is None or settings.key_file is None:
            return None
        return cls(settings.certificate_file, settings.key_file, settings.client_ca_file)

    def stamp(self) -> tuple[int, ...]:
        """Changes when one of the files does. Raises OSError when one is missing."""
        files = (self.certificate, self.key, self.client_ca)
        return tuple(stamp_of(file) for file in files if file is not None)

    def context(self) -> ssl.SSLContext:
        """Of the files as they are. Raises OSError (an SSLError is one) for files that do not fit
        each other.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def told(self, error: OSError) -> str:
        """What is wrong, and with which files."""
        named = ", ".join(str(f) for f in (self.certificate, self.key, self.client_ca) if f)
        return f"{named}: {error}"


def stamp_of(file: Path) -> int:
    """Changes when the file is written anew, or another one is put in its place."""
    stat = file.stat()
    return hash((stat.st_mtime_ns, stat.st_ino, stat.st_size))
