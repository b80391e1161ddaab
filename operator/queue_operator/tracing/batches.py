"""Which span a submission of many jobs belongs to, where each may have been given its own."""

from collections.abc import Iterable, Sequence

from queue_operator.domain.traces import NO_TRACE, Trace


def parent_and_links(
    own: Iterable[Trace], given: Trace = NO_TRACE
) -> tuple[Trace, Sequence[Trace]]:
    """The caller's span, and those to link to. One that all traced jobs share is the caller's,
    where the call itself has none.
    """
    distinct = list(dict.fromkeys(trace for trace in own if trace.parent))
    if len(distinct) == 1 and not given.parent:
        return distinct[0], ()
    return given, [trace for trace in distinct if trace.parent != given.parent]
