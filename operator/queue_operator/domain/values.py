"""Values that are made by the hundred thousand."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # `value(frozen=True)` is checked like any frozen dataclass: nobody assigns to a field.
    from dataclasses import dataclass as value
else:

    def value(*, frozen: bool, **options: Any) -> Any:
        """A frozen dataclass that is not guarded at run time: the guard makes setting a field
        five times as dear, and making a job with its many fields dearer than storing it.
        """
        return dataclass(unsafe_hash=frozen, **options)


__all__ = ["value"]
