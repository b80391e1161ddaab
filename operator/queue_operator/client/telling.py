"""Operations on the messages of webhooks: what is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from queue_operator.client.encoding import encode
from queue_operator.client.messages import (
    WebhookList,
    WebhookMessage,
    WebhookPurgeResult,
    WebhookRedeliveryResult,
)
from queue_operator.client.protocol import Call, Operation, params_of, parsed, segment
from queue_operator.domain.errors import InvalidArgument

PAGE_MESSAGES: Final = 1000


def webhooks(
    state: str | None,
    job_id: str | None,
    cursor: str | None,
    limit: int | None,
    namespace: str | None,
) -> Operation[WebhookList]:
    params = params_of(namespace, state=state, job_id=job_id, cursor=cursor, limit=limit)
    return parsed(Call("GET", "/v1/webhooks", params), WebhookList)


def webhook(message_id: str, namespace: str | None) -> Operation[WebhookMessage]:
    path = f"/v1/webhooks/{segment('message_id', message_id)}"
    call = Call("GET", path, params_of(namespace), message_id=message_id)
    return parsed(call, WebhookMessage)


@dataclass(frozen=True, slots=True)
class Messages:
    """Which messages: those of `ids`, or all of a `state`."""

    ids: Sequence[str] | None
    state: str | None

    def document(self, dry_run: bool) -> bytes:
        """The choice as the API takes it. Raises InvalidArgument for one id in place of many."""
        if isinstance(self.ids, str) or (self.ids is None) == (self.state is None):
            raise InvalidArgument("ids", "give a list of ids or a state, one of the two")
        fields: dict[str, Any] = {"dry_run": dry_run}
        if self.ids is not None:
            fields["ids"] = list(self.ids)
        if self.state is not None:
            fields["state"] = self.state
        return encode(fields)


def redeliver(
    which: Messages, dry_run: bool, namespace: str | None
) -> Operation[WebhookRedeliveryResult]:
    # Repeated, it would tell once more what was delivered meanwhile.
    call = Call(
        "POST",
        "/v1/webhooks/redeliver",
        params_of(namespace),
        which.document(dry_run),
        is_repeatable=dry_run,
    )
    return parsed(call, WebhookRedeliveryResult)


def purge(which: Messages, dry_run: bool, namespace: str | None) -> Operation[WebhookPurgeResult]:
    call = Call("POST", "/v1/webhooks/purge", params_of(namespace), which.document(dry_run))
    return parsed(call, WebhookPurgeResult)
