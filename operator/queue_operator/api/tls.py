"""TLS of the REST port. Certificates that were replaced are used from the next connection on."""

import logging
import ssl
from typing import Any, Self

from queue_operator.domain.errors import InvalidArgument
from queue_operator.wire.certificate_files import ServerFiles

logger = logging.getLogger(__name__)


class RenewedContext(ssl.SSLContext):
    """What the event loop is given: each connection gets a context of the files as they are then.
    While they are unusable, the last ones serve on.

    Raises InvalidArgument for files that no server can use.
    """

    _files: ServerFiles
    _stamp: tuple[int, ...]
    _current: ssl.SSLContext

    def __new__(cls, files: ServerFiles) -> Self:
        context = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        context._files = files
        try:
            context._stamp = files.stamp()
            context._current = _context(files)
        except OSError as error:
            raise InvalidArgument("rest.certificate_file", files.told(error)) from error
        return context

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Called for each connection."""
        self._renew()
        return self._current.wrap_bio(*args, **options)

    def _renew(self) -> None:
        try:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._current = _context(self._files)
        except OSError as error:
            logger.error("the certificates stay as they were: %s", self._files.told(error))
        else:
            logger.info("the certificates of the REST port were renewed")


def _context(files: ServerFiles) -> ssl.SSLContext:
    context = files.context()
    context.set_alpn_protocols(["http/1.1"])
    return context
