"""Messages to those who are told of the ends of jobs: to look at, to send again, to delete."""

from typing import Any, Final
from urllib.parse import unquote_to_bytes

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.errors import fault
from queue_operator.api.operation import Body, Call, Operation, render
from queue_operator.api.parsing import parse
from queue_operator.api.schemas.webhooks import MOST_MESSAGES
from queue_operator.api.views import webhooks as views
from queue_operator.backends.webhooks import MessageSearch, MessageState
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import check_text

_BODY_BYTES: Final = 512 * 1024
_MESSAGE_ID: Final = "message_id"

AnyCall = Call[schemas.NamespaceQuery]
Wanted = schemas.WebhookRedelivery | schemas.WebhookPurge


async def list_webhooks(call: Call[schemas.WebhookListQuery]) -> Response:
    """What is told, or was, of the ends of jobs, newest first. What was delivered is kept for a
    while only, what failed for longer.
    """
    query = call.query
    if query.job_id is not None:
        check_text("job_id", query.job_id, call.services.limits.id_characters)
    try:
        page = await call.services.jobs.webhooks.search(
            MessageSearch(
                namespace=call.namespace,
                state=query.state,
                job_id=query.job_id or "",
                after=query.cursor or "",
                limit=query.limit,
            )
        )
    except InvalidArgument as error:
        if error.field != "after":
            raise
        raise InvalidArgument("cursor", error.reason) from None
    return render(
        schemas.WebhookList(
            messages=[views.message(one) for one in page.messages],
            next_cursor=page.next_cursor or None,
            has_more=bool(page.next_cursor),
        )
    )


async def get_webhook(call: AnyCall) -> Response:
    """One message: to whom, how often it was tried, and what the receiver said last."""
    store = call.services.jobs.webhooks
    return render(views.message(await store.get(_message_id(call), namespace=call.namespace)))


async def redeliver_webhooks(call: AnyCall) -> Response:
    """Has messages told once more that are told no more, under the same ids: their receivers know
    by those what they have heard already. A message that is not there, or is still told, counts
    for nothing.
    """
    wanted = await _read(call, schemas.WebhookRedelivery)
    store = call.services.jobs.webhooks
    with _audited(call, wanted) as told:
        if wanted.dry_run:
            count = await store.count(call.namespace, ended=True, **_chosen(wanted))
        else:
            count = await store.redeliver(call.namespace, **_chosen(wanted))
        told.update(count=count)
    return render(schemas.WebhookRedeliveryResult(redelivered=count, **_rest(wanted, count)))


async def purge_webhooks(call: AnyCall) -> Response:
    """Deletes messages. A message that is not there counts for nothing."""
    wanted = await _read(call, schemas.WebhookPurge)
    store = call.services.jobs.webhooks
    with _audited(call, wanted) as told:
        if wanted.dry_run:
            count = await store.count(call.namespace, **_chosen(wanted))
        else:
            count = await store.purge(call.namespace, **_chosen(wanted))
        told.update(count=count)
    return render(schemas.WebhookPurgeResult(purged=count, **_rest(wanted, count)))


def _message_id(call: AnyCall) -> str:
    escaped = call.request.scope["path_params"][_MESSAGE_ID]
    try:
        message_id = unquote_to_bytes(escaped).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(_MESSAGE_ID, "is not UTF-8") from None
    check_text(_MESSAGE_ID, message_id, call.services.limits.id_characters)
    return message_id


async def _read(call: AnyCall, model: type[Any]) -> Any:
    body = await call.body(_BODY_BYTES)
    wanted = await call.apart(lambda: parse(body, model), len(body))
    if (wanted.ids is None) == (wanted.state is None):
        raise fault("state", "INVALID_REQUEST", "give either ids or a state")
    for place, message_id in enumerate(wanted.ids or ()):
        check_text(f"ids[{place}]", message_id, call.services.limits.id_characters)
    if wanted.state is not None:
        await call.review("list")
    return wanted


def _audited(call: AnyCall, wanted: Wanted) -> Any:
    chosen = {"messages": wanted.ids} if wanted.state is None else {"filter": wanted.state}
    return call.change(**chosen, dry_run=wanted.dry_run)


def _chosen(wanted: Wanted) -> dict[str, Any]:
    """Which messages, as the store takes it."""
    state = None if wanted.state is None else MessageState(wanted.state)
    return {"ids": wanted.ids or (), "state": state, "limit": MOST_MESSAGES}


def _rest(wanted: Wanted, count: int) -> dict[str, Any]:
    return {
        "dry_run": wanted.dry_run,
        "has_more": wanted.state is not None and count >= MOST_MESSAGES,
    }


_SUBJECT: Final = "Webhooks"

OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="listWebhooks",
        method="GET",
        path="/v1/webhooks",
        verb="list",
        subject=_SUBJECT,
        summary="What is told of the ends of jobs",
        run=list_webhooks,
        query=schemas.WebhookListQuery,
        answers={200: schemas.WebhookList},
    ),
    Operation(
        id="redeliverWebhooks",
        method="POST",
        path="/v1/webhooks/redeliver",
        verb="update",
        subject=_SUBJECT,
        summary="Tell it once more",
        run=redeliver_webhooks,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.WebhookRedelivery),
        answers={200: schemas.WebhookRedeliveryResult},
    ),
    Operation(
        id="purgeWebhooks",
        method="POST",
        path="/v1/webhooks/purge",
        verb="delete",
        subject=_SUBJECT,
        summary="Delete messages",
        run=purge_webhooks,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.WebhookPurge),
        answers={200: schemas.WebhookPurgeResult},
    ),
    Operation(
        id="getWebhook",
        method="GET",
        path="/v1/webhooks/{message_id}",
        verb="get",
        subject=_SUBJECT,
        summary="Look at a message",
        run=get_webhook,
        query=schemas.NamespaceQuery,
        answers={200: schemas.WebhookMessage},
        errors=frozenset({404}),
    ),
)
