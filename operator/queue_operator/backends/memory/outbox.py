"""An outbox in memory."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from queue_operator.backends.outbox import Post
from queue_operator.backends.webhooks import Message, MessageSearch, MessageState


@dataclass
class MemoryOutbox:
    """Looked through from end to end by each call."""

    posts: dict[int, Post] = field(default_factory=dict)
    numbers: int = 0

    def add(self, message: Callable[[int], Message]) -> None:
        self.numbers += 1
        self.posts[self.numbers] = Post(self.numbers, message(self.numbers))

    def find(self, number: int) -> Post | None:
        return self.posts.get(number)

    def keep(self, post: Post) -> None:
        self.posts[post.number] = post

    def remove(self, number: int) -> None:
        del self.posts[number]

    def due(self, now: datetime, per_receiver: int) -> list[Post]:
        found: defaultdict[str, list[Post]] = defaultdict(list)
        for post in self._in_order():
            mine, next_at = found[post.message.receiver], post.message.next_at
            if next_at is not None and next_at <= now and len(mine) < per_receiver:
                mine.append(post)
        return sorted(post for mine in found.values() for post in mine)

    def _in_order(self) -> list[Post]:
        return [self.posts[number] for number in sorted(self.posts)]

    def listed(
        self, search: MessageSearch, states: Sequence[MessageState], before: int, limit: int
    ) -> list[Post]:
        found = [
            post
            for post in reversed(self._in_order())
            if post.message.namespace == search.namespace
            and post.message.state in states
            and search.job_id in ("", post.message.job_id)
            and post.number < before
        ]
        return found[:limit]

    def oldest(self, namespace: str, states: Sequence[MessageState], limit: int) -> list[Post]:
        mine = [one for one in self._in_order() if one.message.namespace == namespace]
        return [one for one in mine if one.message.state in states][:limit]

    def ended(self, state: MessageState, until: datetime, limit: int) -> list[Post]:
        old = [
            (post.message.last_at, post.number)
            for post in self.posts.values()
            if post.message.state is state and post.message.last_at is not None
        ]
        return [self.posts[number] for at, number in sorted(old)[:limit] if at <= until]

    def counts(self) -> Counter[tuple[str, MessageState]]:
        messages = (post.message for post in self.posts.values())
        return Counter((message.namespace, message.state) for message in messages)

    def due_since(self) -> datetime | None:
        times = (post.message.next_at for post in self.posts.values())
        return min((at for at in times if at is not None), default=None)
