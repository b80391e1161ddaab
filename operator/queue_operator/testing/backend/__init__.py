"""The conformance suite of a store: `from queue_operator.testing.backend import *` in a test
module that has fixtures `store` and, for the random histories, `make_store`: a function that
gives an awaitable of a new store. The tests are coroutines: set `asyncio_mode = "auto"`.
"""
