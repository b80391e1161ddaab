"""Texts that have to fit into a place, and those of values that may have none."""


def cut(text: str, limit_bytes: int, *, keep_end: bool = False) -> str:
    """At most `limit_bytes` of UTF-8, from the beginning or the end, with no half characters."""
    if len(text) * 4 <= limit_bytes:
        return text
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    return (data[-limit_bytes:] if keep_end else data[:limit_bytes]).decode(errors="ignore")


def text_of(value: object) -> str:
    """Its text. An object of user code that cannot say what it is must not stop the worker."""
    try:
        return str.__str__(str(value))
    except Exception as error:
        return f"{kind_of(value)} whose text cannot be had: {type(error).__name__}"


def kind_of(value: object) -> str:
    """The type of a value as a reader would call it: "a set", "an object"."""
    name = type(value).__name__ or "object"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
