"""Texts that have to fit into a place."""


def cut(text: str, limit_bytes: int, *, keep_end: bool = False) -> str:
    """At most `limit_bytes` of UTF-8, from the beginning or the end, with no half characters."""
    if len(text) * 4 <= limit_bytes:
        return text
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    return (data[-limit_bytes:] if keep_end else data[:limit_bytes]).decode(errors="ignore")
