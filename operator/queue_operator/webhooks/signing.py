"""Signatures after Standard Webhooks, by its library."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Self

from standardwebhooks import Webhook

PREFIX: Final = "whsec_"
_LEAST_BYTES: Final = 24
_MOST_BYTES: Final = 64
_FORM: Final = (
    f"must be {PREFIX} and {_LEAST_BYTES} to {_MOST_BYTES} random bytes in base64; as of: "
    'echo "whsec_$(openssl rand -base64 32)"'
)


class Secret:
    """What signs. It shows itself to nobody."""

    __slots__ = ("_webhook",)

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises ValueError, which does not quote it, unless it is one as Standard Webhooks writes
        them.
        """
        try:
            key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(_FORM) from None
        if not text.startswith(PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
            raise ValueError(_FORM)
        return cls(Webhook(key))

    def sign(self, message_id: str, at: datetime, body: str) -> str:
        return self._webhook.sign(message_id, at, body)

    def __repr__(self) -> str:
        return "Secret('**********')"


def signed_headers(
    message_id: str, at: datetime, body: bytes, secrets: Sequence[Secret]
) -> dict[str, str]:
    """The headers of one try at `at`: a signature for each of the secrets, none without any."""
    moment = at.astimezone(UTC)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(int(moment.timestamp()))}
    if secrets:
        text = body.decode()
        headers["webhook-signature"] = " ".join(
            secret.sign(message_id, moment, text) for secret in secrets
        )
    return headers
