"""Holding jobs back, and letting them go."""

from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.operation import Body, Call, Operation, render
from queue_operator.api.parsing import parse
from queue_operator.api.views import steering as views
from queue_operator.backends.steering import Pause
from queue_operator.domain.validation import REASON_CHARACTERS, check_text

_BODY_BYTES: Final = 64 * 1024


async def list_pauses(call: Call[schemas.NamespaceQuery]) -> Response:
    """What of the namespace is paused."""
    found = await call.services.jobs.pauses(call.namespace)
    return render(schemas.PauseList(pauses=[views.pause(one) for one in found]))


async def pause(call: Call[schemas.NamespaceQuery]) -> Response:
    """From now on no job of the namespace starts, or none of a type. Running jobs go on."""
    body = await call.body(_BODY_BYTES)
    wanted = parse(body or b"{}", schemas.PauseRequest)
    check_text("reason", wanted.reason, REASON_CHARACTERS, required=False)
    if wanted.type is not None:
        check_text("type", wanted.type, call.services.limits.id_characters)
    with call.change(filter={"type": wanted.type}, reason=wanted.reason):
        stored = await call.services.jobs.pause(
            Pause(
                namespace=call.namespace,
                type=wanted.type or "",
                reason=wanted.reason,
                by=call.identity.name,
            )
        )
    return render(views.pause(stored))


async def resume(call: Call[schemas.ResumeQuery]) -> Response:
    """Ends the pause of exactly this type, or the one of all types."""
    wanted = call.query
    if wanted.type is not None:
        check_text("type", wanted.type, call.services.limits.id_characters)
    with call.change(filter={"type": wanted.type}) as told:
        resumed = await call.services.jobs.resume(call.namespace, wanted.type or "")
        told.update(count=int(resumed))
    return render(schemas.ResumeResult(resumed=resumed))


OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="listPauses",
        method="GET",
        path="/v1/pauses",
        verb="list",
        subject="Pauses",
        summary="What is paused",
        run=list_pauses,
        query=schemas.NamespaceQuery,
        answers={200: schemas.PauseList},
    ),
    Operation(
        id="pause",
        method="PUT",
        path="/v1/pauses",
        verb="update",
        subject="Pauses",
        summary="Pause a namespace, or a type of job",
        run=pause,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.PauseRequest, required=False),
        answers={200: schemas.Pause},
    ),
    Operation(
        id="resume",
        method="DELETE",
        path="/v1/pauses",
        verb="update",
        subject="Pauses",
        summary="End a pause",
        run=resume,
        query=schemas.ResumeQuery,
        answers={200: schemas.ResumeResult},
    ),
)
