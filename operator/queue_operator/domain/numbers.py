"""What counts as a number in a document: no text, and no truth value."""


def number(value: object) -> int | float:
    """The value. Raises ValueError unless it is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return value


def whole(value: object) -> int | float:
    """The same for a number that must be whole: JSON does not tell 5.0 from 5."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("must be a whole number")
    return value
