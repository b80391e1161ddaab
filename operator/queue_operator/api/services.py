"""What every route needs: the queue, who may call it, and the limits."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, cast

import anyio
from fastapi import Depends, Request

from queue_operator.auth.protocol import QUEUE_JOBS, Authenticator, Authorizer
from queue_operator.domain.validation import Limits, check_text
from queue_operator.queue.protocol import Queue
from queue_operator.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """`now` is used for views only. `parsing` admits one large body or result at a time."""

    queue: Queue
    authenticator: Authenticator
    authorizer: Authorizer
    settings: Settings
    limits: Limits
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    parsing: anyio.CapacityLimiter

    async def admit(self, request: Request, verb: str, namespace: str | None) -> str:
        """The namespace the call is for, once the caller may do `verb` to its jobs.

        Raises Unauthenticated, Forbidden, InvalidArgument or Unavailable.
        """
        identity = await self.authenticator.authenticate(_bearer_token(request))
        wanted = identity.namespace if namespace is None else namespace
        check_text("namespace", wanted, self.limits.id_characters)
        await self.authorizer.authorize(identity, verb, QUEUE_JOBS, wanted)
        return wanted


def _bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesOf = Annotated[Services, Depends(_services)]
