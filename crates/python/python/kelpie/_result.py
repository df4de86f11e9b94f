"""Results: statements that run when their rows are asked for."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _kelpie, _values

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from ._session import Session

_SHOWN = 20
_WIDEST_CELL = 60


class Result:
    """A statement, planned by :meth:`Session.sql`. It runs when its rows are asked for, each time anew.

    A statement that changes something has run already, and its rows are kept.
    """

    def __init__(self, session: Session, sql: str, parameters: Any, tables: dict[str, _kelpie.Table], is_query: bool):
        self._session = session
        self._sql = sql
        self._parameters = parameters
        self._tables = tables
        self._open: Iterator[tuple[Any, ...]] | None = None
        self._kept: _kelpie.Batches | None = None
        self._started: _kelpie.Rows | None = self._start()
        self._columns = self._started.columns
        self._types = self._started.types
        if not is_query:
            self._kept = self._started.collect()
            self._started = None

    def _start(self) -> _kelpie.Rows:
        values = None if self._parameters is None else _values.parameters(self._parameters)
        return self._session._start(self._sql, values, self._tables)

    def _take(self) -> _kelpie.Rows | _kelpie.Batches:
        if self._kept is not None:
            return self._kept
        started, self._started = self._started, None
        return started if started is not None else self._start()

    def _collect(self, rows: int | None = None) -> _kelpie.Batches:
        taken = self._take()
        if isinstance(taken, _kelpie.Batches):
            return taken
        batches = taken.collect(rows)
        taken.close()
        return batches

    # What it is.

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    @property
    def types(self) -> list[str]:
        """The types of the columns, as Arrow names them."""
        return [repr(kind) for kind in self._types]

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns as a schema of pyarrow."""
        import pyarrow

        described: Any = self
        return pyarrow.schema(described)

    def explain(self, analyze: bool = False, stage: str | None = None) -> str:
        """How it runs.

        With ``analyze`` it runs, and the plan says how long each part took. A ``stage`` is one of the compilation: ``"plan"``,
        ``"variants"``, ``"pipelines"``, ``"kir"``, or ``"code"``, the code of the device.
        """
        if stage is not None:
            return self._session._explain(self._sql, stage, self._tables)
        words = "EXPLAIN ANALYZE " if analyze else "EXPLAIN "
        rows = Result(self._session, words + self._sql, self._parameters, self._tables, True).fetchall()
        return "\n".join(str(row[-1]).rstrip() for row in rows)

    # Its rows, for other packages.

    def arrow(self) -> pyarrow.Table:
        """The rows as a table of pyarrow. Texts are of type ``string``; ``pyarrow.table(result)`` leaves them as they are."""
        import pyarrow

        return pyarrow.table(self._collect().without_views())

    def reader(self) -> pyarrow.RecordBatchReader:
        """The rows as they come, in little memory."""
        import pyarrow

        return pyarrow.RecordBatchReader.from_stream(self)

    def df(self, **options: Any) -> pandas.DataFrame:
        """The rows as a frame of Pandas. Options are those of ``pyarrow.Table.to_pandas``."""
        return self.arrow().to_pandas(**options)

    def pl(self) -> polars.DataFrame:
        """The rows as a frame of Polars."""
        import polars

        return polars.DataFrame(self._collect())

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows as they come, in batches of pyarrow."""
        return iter(self.reader())

    def __arrow_c_schema__(self) -> object:
        if self._kept is not None:
            return self._kept.__arrow_c_schema__()
        if self._started is None:
            self._started = self._start()
        return self._started.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._take().__arrow_c_stream__(requested_schema)

    # Its rows, as objects of Python.

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        taken = self._take()
        if isinstance(taken, _kelpie.Batches):
            yield from taken.rows()
            return
        try:
            while (batch := taken.next()) is not None:
                yield from batch.rows()
        finally:
            taken.close()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or ``None`` after the last."""
        if self._open is None:
            self._open = self._rows()
        row = next(self._open, None)
        if row is None:
            self._open = None
        return row

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows, at most ``size``; none after the last."""
        rows: list[tuple[Any, ...]] = []
        while len(rows) < size and (row := self.fetchone()) is not None:
            rows.append(row)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows, or those that :meth:`fetchone` and :meth:`fetchmany` have left."""
        rows, self._open = self._open, None
        if rows is not None:
            return list(rows)
        return self._collect().rows()

    # For people.

    def show(self, rows: int = _SHOWN) -> None:
        """Prints the first rows as a table."""
        print(self._text(rows))

    def __repr__(self) -> str:
        return self._text(_SHOWN)

    def _first(self, rows: int) -> tuple[list[list[str | None]], bool]:
        rows = max(rows, 0)
        cells = self._collect(rows + 1).cells(rows + 1)
        return cells[:rows], len(cells) > rows

    def _text(self, rows: int) -> str:
        cells, more = self._first(rows)
        return _table(self._columns, [repr(kind) for kind in self._types], cells) + (f"\nthe first {len(cells)} rows" if more else "")

    def _repr_html_(self) -> str:
        cells, more = self._first(_SHOWN)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._columns)
        body = "".join(
            "<tr>" + "".join("<td><i>NULL</i></td>" if cell is None else f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in cells
        )
        note = f"<p>the first {_SHOWN} rows</p>" if more else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _table(names: list[str], types: list[str], rows: list[list[str | None]]) -> str:
    if not names:
        return "(no columns)"
    right = [kind.startswith(("Int", "UInt", "Float", "Decimal")) for kind in types]
    texts = [[_cut(name) for name in names]] + [["NULL" if cell is None else _cut(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*texts)]

    def line(cells: list[str]) -> str:
        padded = []
        for cell, width, is_right in zip(cells, widths, right):
            space = " " * (width - _width(cell))
            padded.append(space + cell if is_right else cell + space)
        return "│ " + " │ ".join(padded) + " │"

    def rule(left: str, between: str, end: str) -> str:
        return left + between.join("─" * (width + 2) for width in widths) + end

    head, *body = map(line, texts)
    return "\n".join([rule("┌", "┬", "┐"), head, rule("├", "┼", "┤"), *body, rule("└", "┴", "┘")])


def _cut(text: str) -> str:
    """What one cell of a table shows."""
    text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    return text if len(text) <= _WIDEST_CELL else text[: _WIDEST_CELL - 1] + "…"


def _width(text: str) -> int:
    """Places in a terminal."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) != 0 for sign in text)
