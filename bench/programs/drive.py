"""`python -m bench.programs.drive`: one of our stores as a program, see `bench.lines`."""

import asyncio
import os
import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any, Final, TypeGuard

import uvloop

from bench.lines import Spec, expect, read_spec, say, tick
from bench.programs.bare_copy import BareCopy
from bench.programs.ledger import Ledger
from bench.programs.product import Product
from bench.programs.stores import Claimed, Openers, Store, Submitter
from bench.programs.wide_row import WideRow

OPENERS: Final[Openers] = {
    "product": Product.open,
    "wide_row": WideRow.open,
    "bare_copy": BareCopy.open,
}
_NOTHING_THERE_S: Final = 0.001


class Load:
    """One store under load, as in the product: the next claim runs while what was claimed
    before is completed, and nobody waits for a single job.
    """

    def __init__(self, store: Submitter, spec: Spec, ledger: Ledger) -> None:
        self._any_store = store
        self._spec = spec
        self._ledger = ledger
        self._claims_s: list[float] = []
        self._claimed: asyncio.Queue[Claimed] = asyncio.Queue(spec.get("pipelines", 1))
        self._room = asyncio.Event()

    @property
    def _store(self) -> Store:
        if not _claims(self._any_store):
            raise TypeError("this store only takes jobs in")
        return self._any_store

    async def submit_all(self) -> None:
        async def submit_share() -> None:
            while left := self._spec["jobs"] - self._ledger.reserved:
                await self._submit(min(left, self._spec["submit_batch"]))

        await asyncio.gather(*(submit_share() for _ in range(self._spec["submitters"])))

    async def burn_down(self) -> None:
        """Until all jobs that were submitted before are completed."""
        jobs = int(self._spec["jobs"])
        await self._work(lambda: self._ledger.claimed >= jobs)

    async def continuous(self, started: float) -> None:
        """For the time given, submissions going on."""
        end = started + float(self._spec["seconds"])

        def over() -> bool:
            return time.perf_counter() >= end

        submitting = asyncio.create_task(self._keep_depth(over))
        await self._work(over)
        # A submission is never cut off: nobody would know whether it was stored.
        self._room.set()
        await submitting

    async def drain(self) -> None:
        """Completes what was submitted, after the measured part."""
        await self._work(lambda: self._ledger.claimed >= self._ledger.submitted)

    def claim_metrics(self) -> dict[str, float]:
        if len(self._claims_s) < 2:
            return {}
        cuts = quantiles(self._claims_s, n=100)
        return {"claim_p50_ms": cuts[49] * 1000, "claim_p99_ms": cuts[98] * 1000}

    async def _work(self, over: Callable[[], bool]) -> None:
        pipelines = range(self._spec["pipelines"])
        async with asyncio.TaskGroup() as group:
            completers = [group.create_task(self._complete()) for _ in pipelines]
            await asyncio.gather(*(self._claim(over) for _ in pipelines))
            await self._claimed.join()
            for completer in completers:
                completer.cancel()

    async def _claim(self, over: Callable[[], bool]) -> None:
        while not over():
            before = time.perf_counter()
            claimed = await self._store.claim(self._spec["batch"])
            if not claimed:
                await asyncio.sleep(_NOTHING_THERE_S)
                continue
            self._claims_s.append(time.perf_counter() - before)
            self._ledger.record_claimed(claimed)
            await self._claimed.put(claimed)

    async def _complete(self) -> None:
        while True:
            claimed = await self._claimed.get()
            completed = await self._store.complete(claimed)
            if completed != len(claimed):
                raise RuntimeError(f"{completed} of {len(claimed)} jobs were completed")
            self._ledger.record_completed(claimed)
            self._room.set()
            self._claimed.task_done()

    async def _keep_depth(self, over: Callable[[], bool]) -> None:
        while not over():
            if self._ledger.submitted - self._ledger.completed < self._spec["depth"]:
                await self._submit(self._spec["submit_batch"])
            else:
                self._room.clear()
                await self._room.wait()

    async def _submit(self, count: int) -> None:
        numbers = self._ledger.reserve(count)
        await self._any_store.submit(numbers)
        self._ledger.record_submitted(count)


def _claims(store: Submitter) -> TypeGuard[Store]:
    return hasattr(store, "claim")


async def _work(load: Load, mode: str, started: float) -> None:
    if mode == "submit":
        await load.submit_all()
    elif mode == "burn_down":
        await load.burn_down()
    else:
        await load.continuous(started)


async def _say_ledger(store: Submitter, ledger: Ledger, mode: str) -> None:
    stored = await store.stored()
    there = stored.jobs if mode == "submit" else stored.completed
    say(
        "ledger",
        submitted=ledger.submitted,
        stored=stored.jobs,
        completed=stored.completed,
        duplicates=ledger.duplicates + stored.repeated,
        lost=ledger.submitted - there,
    )


async def main() -> None:
    spec: dict[str, Any] = read_spec()
    mode: str = spec["mode"]
    store = await OPENERS[spec["store"]](spec["dsn"], os.urandom(spec["payload"]))
    ledger = Ledger()
    load = Load(store, spec, ledger)
    if mode == "burn_down":
        await load.submit_all()
    say("ready")
    await expect("go")
    started = time.perf_counter()
    ticks = asyncio.create_task(tick(ledger.counts, started))
    await _work(load, mode, started)
    elapsed = time.perf_counter() - started
    ticks.cancel()
    say("done", elapsed=elapsed, **ledger.counts(), **load.claim_metrics())
    await expect("finish")
    if mode == "continuous":
        await load.drain()
    await _say_ledger(store, ledger, mode)
    await store.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
