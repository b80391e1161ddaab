"""The conformance suite of a store: `from queue_operator.testing.backend import *` in a test
module that has a fixture `store` (and `make_store`, for the random histories).
"""
