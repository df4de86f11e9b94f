"""Scalar functions in Python over Arrow arrays."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from ._errors import InterfaceError

_SQL_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "varchar",
    bytes: "bytea",
    datetime.date: "date",
    datetime.datetime: "timestamp",
    datetime.time: "time",
    decimal.Decimal: "decimal(38, 10)",
}


def type_of(kind: Any) -> Any:
    """A type of Arrow's, or the name of one in SQL."""
    if isinstance(kind, str) or hasattr(kind, "__arrow_c_schema__"):
        return kind
    if isinstance(kind, type) and kind in _SQL_TYPES:
        return _SQL_TYPES[kind]
    raise InterfaceError(f"{kind!r} is no type: types are those of pyarrow, names of SQL such as 'bigint', and int, float, str, …")


def over_arrays(name: str, function: Callable[..., Any], returns: Any) -> Callable[[list[Any], int], Any]:
    """Calls a function with arrays of pyarrow, and makes an array of what it gives."""
    import pyarrow

    if not callable(function):
        raise InterfaceError(f"a value of type {type(function).__name__} is no function")
    return_type = pyarrow.field(returns).type

    def called(arguments: list[Any], rows: int) -> Any:
        result = function(*[pyarrow.array(argument) for argument in arguments])
        return _array_of(result, return_type, rows, name)

    return called


def _array_of(result: Any, return_type: Any, rows: int, name: str) -> Any:
    import pyarrow

    if isinstance(result, pyarrow.ChunkedArray):
        result = result.combine_chunks()
    if isinstance(result, pyarrow.Array):
        return result
    if isinstance(result, pyarrow.Scalar):
        value: Any = result
        return pyarrow.repeat(value, rows)
    if result is None or isinstance(result, (bool, int, float, str, bytes)):
        return pyarrow.repeat(pyarrow.scalar(result, return_type), rows)
    if hasattr(result, "to_arrow"):
        return _array_of(result.to_arrow(), return_type, rows, name)
    try:
        return pyarrow.array(result, type=return_type, from_pandas=True)
    except (pyarrow.ArrowException, TypeError) as error:
        raise InterfaceError(f"the function {name} gave what is no array of {return_type}: {error}") from error
