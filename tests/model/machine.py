"""Random histories of everything the contract has, on two stores in lockstep."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests.model.lockstep import Pair
from tests.model.steps import Call, calls

T = TypeVar("T")


class Histories(RuleBasedStateMachine):
    """`pair` makes two empty stores; `loop` runs the calls. There is one rule only, because
    hypothesis leaves out some rules of each history, and without submissions or claims nothing
    happens.
    """

    loop: ClassVar[asyncio.AbstractEventLoop]
    pair: ClassVar[Callable[[], Coroutine[Any, Any, Pair]]]
    walked: ClassVar[int] = 0
    histories: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.stores: Pair = self._run(type(self).pair())
        type(self).histories += 1

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    @rule(call=st.runner().flatmap(lambda machine: calls(machine.stores)))
    def step(self, call: Call) -> None:
        type(self).walked += 1
        try:
            self._run(call.step.walk(self.stores, **call.arguments))
        except BaseException:
            self.stores.agree = False
            raise

    def teardown(self) -> None:
        try:
            # What comes after a difference would only be more of the same.
            if self.stores.agree:
                self._run(self.stores.finish())
        finally:
            self._run(self.stores.close())
