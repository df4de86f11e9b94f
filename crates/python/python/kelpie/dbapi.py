"""Kelpie as DB-API 2.0 (PEP 249).

>>> from kelpie import dbapi
>>> with dbapi.connect() as connection:
...     connection.cursor().execute("SELECT ? + 1", [41]).fetchone()
(42,)
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import _session
from ._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from ._result import Result

__all__ = [
    "BINARY",
    "Binary",
    "Connection",
    "Cursor",
    "DATETIME",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
#: Threads may share the module and connections, but not cursors.
threadsafety = 2
#: ``?``; ``$1`` and ``$name`` are parameters too.
paramstyle = "qmark"

Parameters = Sequence[Any] | Mapping[str, Any]


class _TypeGroup:
    """Equal to the types of Arrow whose names begin with one of its words."""

    def __init__(self, name: str, *words: str):
        self._name = name
        self._words = words

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _TypeGroup):
            return self is other
        return isinstance(other, str) and other.startswith(self._words)

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return self._name


STRING = _TypeGroup("STRING", "Utf8", "LargeUtf8", "Dictionary")
BINARY = _TypeGroup("BINARY", "Binary", "LargeBinary", "FixedSizeBinary")
NUMBER = _TypeGroup("NUMBER", "Int8", "Int16", "Int32", "Int64", "UInt", "Float", "Decimal")
DATETIME = _TypeGroup("DATETIME", "Date", "Time", "Duration", "Interval")
ROWID = _TypeGroup("ROWID", "\0")

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802 - the name is PEP 249's
    """The local date of a time in seconds since 1970."""
    return datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """The local time of the day of a time in seconds since 1970."""
    return datetime.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """The local time of a time in seconds since 1970."""
    return datetime.datetime.fromtimestamp(ticks)


class Connection:
    """A session. There are no transactions: each statement lasts."""

    DataError = DataError
    DatabaseError = DatabaseError
    Error = Error
    IntegrityError = IntegrityError
    InterfaceError = InterfaceError
    InternalError = InternalError
    NotSupportedError = NotSupportedError
    OperationalError = OperationalError
    ProgrammingError = ProgrammingError
    Warning = Warning

    def __init__(self, session: _session.Session):
        self.session = session

    def cursor(self) -> Cursor:
        """A cursor."""
        self._check()
        return Cursor(self)

    def commit(self) -> None:
        """Does nothing: what a statement has done lasts."""
        self._check()

    def rollback(self) -> None:
        """Is not there."""
        self._check()
        raise NotSupportedError("there are no transactions: what a statement has done lasts")

    def close(self) -> None:
        """Ends the session."""
        self._check()
        self.session.close()

    def _check(self) -> None:
        if self.session.closed:
            raise InterfaceError("the connection is closed")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.session.closed:
            self.session.close()


class Cursor:
    """A statement with its rows."""

    def __init__(self, connection: Connection):
        self.connection = connection
        #: How many rows :meth:`fetchmany` gives.
        self.arraysize = 1
        self._result: Result | None = None
        self._closed = False
        self._description: list[tuple[str, str, None, None, None, None, None]] | None = None

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]] | None:
        """A tuple a column: its name, its type as Arrow names it, and what is not known."""
        return self._description

    @property
    def rowcount(self) -> int:
        """-1: how many rows there are is not known before they come."""
        return -1

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Plans a statement, and runs it as far as rows are fetched."""
        return self._execute(operation, parameters, sys._getframe(1))

    def _execute(self, operation: str, parameters: Parameters | None, frame: Any) -> Cursor:
        self._check()
        self._result, self._description = None, None
        self._result = self.connection.session._sql(operation, parameters, frame)
        columns = zip(self._result.columns, self._result.types)
        described: list[tuple[str, str, None, None, None, None, None]] = [
            (name, kind, None, None, None, None, None) for name, kind in columns
        ]
        self._description = described or None
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Parameters]) -> Cursor:
        """Runs a statement with each of several sets of values."""
        for parameters in seq_of_parameters:
            self._execute(operation, parameters, sys._getframe(1)).fetchall()
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or ``None`` after the last."""
        return next(self._rows(), None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows, at most ``size``, or ``arraysize``."""
        rows, size = self._rows(), self.arraysize if size is None else size
        return [row for _, row in zip(range(size), rows)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that are left."""
        return list(self._rows())

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        self._check()
        if self._result is None:
            raise ProgrammingError("no statement was executed")
        if self._result._open is None:
            # From here on it is this cursor's: after the last row there are no others.
            self._result._open = self._result._rows()
        return self._result._open

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Lets the statement go."""
        self._result, self._description, self._closed = None, None, True

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        self.connection._check()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(data: Any = None, **options: Any) -> Connection:
    """Opens a session: arguments are those of :func:`kelpie.connect`."""
    return Connection(_session.connect(data, **options))
