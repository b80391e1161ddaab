"""Tables that stay readable on narrow terminals: a row is a line, and ids are never cut."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

_GAP: Final = 2
_LEAST: Final = 12
"""What an elastic column keeps at least, before another one is left out."""


class Listing(Table):
    """Columns in the style of kubectl. Where there is no room for all, the `expendable` ones are
    left out, the first of them first; of the `elastic` ones the ends of long texts are.
    """

    def __init__(self, expendable: Sequence[str] = (), elastic: Collection[str] = ()) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold")
        self._expendable = tuple(expendable)
        self._elastic = frozenset(elastic)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """A row, maybe of fewer cells; texts of elastic columns end where their column does."""
        named = zip(self.columns, cells, strict=False)
        super().add_row(
            *(_cut(cell) if column.header in self._elastic else cell for column, cell in named),
            **options,
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = list(self.columns)
        for name in self._expendable:
            if self._width(kept) <= options.max_width:
                break
            kept = [column for column in kept if column.header != name]
        fitting = Table(
            *(replace(column) for column in kept), box=None, pad_edge=False, header_style="bold"
        )
        fitting.rows = list(self.rows)
        yield from Table.__rich_console__(fitting, console, options)

    def _width(self, columns: Sequence[Column]) -> int:
        """The least that these columns need."""
        return sum(map(self._least, columns)) + _GAP * (len(columns) - 1)

    def _least(self, column: Column) -> int:
        texts = (column.header, *column.cells)
        width = max(cell_len(text.plain if isinstance(text, Text) else str(text)) for text in texts)
        return min(width, _LEAST) if column.header in self._elastic else width


def _cut(cell: Any) -> Text:
    text = cell if isinstance(cell, Text) else Text(str(cell))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
