"""The arguments of the calls of `Usages`, checked alike for every store."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from queue_operator.backends.steering import Usage
from queue_operator.backends.tokens import check_take
from queue_operator.domain.validation import Limits, check_pairs, check_texts


class UsagesBase(ABC):
    """Usages, but for the storage itself."""

    _limits: Limits

    async def usage_of(self, namespaces: Collection[str]) -> dict[str, Usage]:
        check_texts("namespaces", namespaces, self._limits.id_characters)
        known = await self._usage_of(namespaces) if namespaces else {}
        return {name: known.get(name, Usage()) for name in namespaces}

    async def take_tokens(
        self, bucket: str, amount: float, *, rate_per_s: float, burst: float
    ) -> float:
        check_take(bucket, amount, rate_per_s, burst)
        return await self._take_tokens(bucket, amount, rate_per_s, burst)

    async def return_tokens(
        self, bucket: str, amount: float, *, rate_per_s: float, burst: float
    ) -> None:
        check_take(bucket, amount, rate_per_s, burst)
        # Whatever a bucket lacks, one can put something in.
        await self._take_tokens(bucket, -amount, rate_per_s, burst)

    async def taken_keys(self, keys: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
        check_pairs("keys", keys)
        check_texts("namespaces", {name for name, _ in keys}, self._limits.id_characters)
        check_texts("keys", {key for _, key in keys}, self._limits.id_characters)
        return await self._taken_keys(keys) if keys else ()

    @abstractmethod
    async def _usage_of(self, namespaces: Collection[str]) -> dict[str, Usage]:
        """One that holds nothing may be missing."""

    @abstractmethod
    async def _take_tokens(
        self, bucket: str, amount: float, rate_per_s: float, burst: float
    ) -> float:
        """An amount below 0 is given back: never is anything lacking for it."""

    @abstractmethod
    async def _taken_keys(self, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]: ...
