"""TLS of the gRPC port. Certificates that were replaced are used from the next connection on."""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from queue_operator.domain.errors import InvalidArgument
from queue_operator.settings import GrpcSettings
from queue_operator.wire.tls import stamp_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """PEM files of the server. With a `client_ca`, callers must show a certificate of it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def of(cls, settings: GrpcSettings) -> "ServerFiles | None":
        """None where the settings name no certificate."""
        if settings.certificate_file is None or settings.key_file is None:
            return None
        return cls(settings.certificate_file, settings.key_file, settings.client_ca_file)

    def credentials(self) -> grpc.ServerCredentials:
        """Raises InvalidArgument for files that no server can use."""
        reader = _Reader(self)
        return grpc.dynamic_ssl_server_credentials(
            reader.first(),
            reader.renewed,  # type: ignore[arg-type]  # None is documented, the stubs forgot it
            require_client_authentication=self.client_ca is not None,
        )

    def stamp(self) -> tuple[int, ...]:
        """Changes when one of the files does."""
        files = (self.certificate, self.key, self.client_ca)
        return tuple(stamp_of(file) for file in files if file is not None)

    def check(self) -> None:
        """Raises OSError (an SSLError is one) for files that do not fit each other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)


class _Reader:
    """Reads the files when they changed; while they are unusable, the last ones serve on."""

    def __init__(self, files: ServerFiles) -> None:
        self._files = files
        self._stamp: tuple[int, ...] = ()

    def first(self) -> grpc.ServerCertificateConfiguration:
        try:
            self._stamp = self._files.stamp()
            return self._read()
        except OSError as error:
            raise InvalidArgument("grpc.certificate_file", _told(self._files, error)) from error

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called before each handshake, by a thread of gRPC; None: as before."""
        try:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            fresh = self._read()
        except OSError as error:
            logger.error("the certificates stay as they were: %s", _told(self._files, error))
            return None
        logger.info("the certificates of the gRPC port were renewed")
        return fresh

    def _read(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        files.check()
        ca = None if files.client_ca is None else files.client_ca.read_bytes()
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=ca)


def _told(files: ServerFiles, error: OSError) -> str:
    named = ", ".join(str(f) for f in (files.certificate, files.key, files.client_ca) if f)
    return f"{named}: {error}"
