"""TLS of the gRPC port. Certificates that were replaced are used from the next connection on."""

import logging

import grpc

from queue_operator.domain.errors import InvalidArgument
from queue_operator.wire.certificate_files import ServerFiles

logger = logging.getLogger(__name__)


def credentials(files: ServerFiles) -> grpc.ServerCredentials:
    """Raises InvalidArgument for files that no server can use."""
    reader = _Reader(files)
    return grpc.dynamic_ssl_server_credentials(
        reader.first(),
        reader.renewed,  # type: ignore[arg-type]  # None is documented, the stubs forgot it
        require_client_authentication=files.client_ca is not None,
    )


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
            raise InvalidArgument("grpc.certificate_file", self._files.told(error)) from error

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called before each handshake, by a thread of gRPC; None: as before."""
        try:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            fresh = self._read()
        except OSError as error:
            logger.error("the certificates stay as they were: %s", self._files.told(error))
            return None
        logger.info("the certificates of the gRPC port were renewed")
        return fresh

    def _read(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        # gRPC does not say what is wrong with them.
        files.context()
        ca = None if files.client_ca is None else files.client_ca.read_bytes()
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=ca)
