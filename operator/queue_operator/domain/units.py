"""Names of fields at doors whose durations carry their own unit: a library's `delay_s` is their
`delay`.
"""

import re
from typing import Final

_NAMES: Final = "delay|delays|initial_delay|max_delay|lease_ttl|retry_after|timeout|time_range|ttl"
_NAMED: Final = re.compile(rf"(?<![a-z_])({_NAMES})_s(?=$|[\[.])")
_BARE: Final = re.compile(rf"(?<![a-z_])({_NAMES})(?=$|[\[.])")


def without_unit(field: str) -> str:
    """`backoff.delays` of `backoff.delays_s`; other names are left as they are."""
    return _NAMED.sub(r"\1", field)


def with_unit(field: str) -> str:
    """`backoff.delays_s` of `backoff.delays`."""
    return _BARE.sub(r"\1_s", field)
