"""TLS of those who call: what they trust and what they show."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from queue_operator.wire.certificate_files import stamp_of

File = Path | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """PEM files. Without a `ca_file` the authorities that gRPC brings along are trusted.

    `certificate_file` (with its chain) and `key_file` are shown to a server that asks for a
    certificate (mutual TLS). `server_name` is the name to expect in the server's certificate
    where it is not the one that was dialled, as behind a port-forward.
    """

    ca_file: File = None
    certificate_file: File = None
    key_file: File = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Of the files as they are now. Raises OSError when one cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file),
            private_key=_read(self.key_file),
            certificate_chain=_read(self.certificate_file),
        )

    def options(self) -> list[tuple[str, str]]:
        """Channel options that belong to the credentials."""
        return [("grpc.ssl_target_name_override", self.server_name)] if self.server_name else []

    def stamp(self) -> tuple[int, ...]:
        """Changes when one of the files does. Raises OSError when one is missing."""
        files = (self.ca_file, self.certificate_file, self.key_file)
        return tuple(stamp_of(Path(file)) for file in files if file is not None)


def _read(file: File) -> bytes | None:
    return None if file is None else Path(file).read_bytes()
