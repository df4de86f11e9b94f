"""Values of Python and of the engine."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ._errors import DataError, ProgrammingError

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_EPOCH_DAY = datetime.date(1970, 1, 1)
_DAY = datetime.timedelta(days=1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_MOST_DIGITS = 38


class Interval(NamedTuple):
    """A span of time by the calendar: months and days have no fixed length."""

    months: int
    days: int
    nanoseconds: int


# What the engine gives, as objects of Python.


def date(days: int) -> datetime.date:
    """A date by its days since 1970."""
    try:
        return datetime.date.fromordinal(_EPOCH_DAY.toordinal() + days)
    except (ValueError, OverflowError) as error:
        raise DataError(f"a date {days} days from 1970 is outside of the years 1 to 9999 that Python has") from error


def time(nanoseconds: int) -> datetime.time:
    """A time of the day; Python has microseconds, what is finer is cut off."""
    return (_EPOCH + datetime.timedelta(microseconds=nanoseconds // 1000)).time()


def duration(nanoseconds: int) -> datetime.timedelta:
    """A span of time."""
    try:
        return datetime.timedelta(microseconds=nanoseconds // 1000)
    except OverflowError as error:
        raise DataError(f"a span of {nanoseconds} nanoseconds is longer than Python has") from error


def timestamps(zone: str | None) -> Callable[[int], datetime.datetime]:
    """Makes times of a zone, or without one, of nanoseconds since 1970; what is finer than microseconds is cut off."""
    known = None if zone is None else _zone(zone)

    def timestamp(nanoseconds: int) -> datetime.datetime:
        try:
            since = datetime.timedelta(microseconds=nanoseconds // 1000)
            return _EPOCH + since if known is None else (_EPOCH_UTC + since).astimezone(known)
        except OverflowError as error:
            message = f"a time {nanoseconds} nanoseconds from 1970 is outside of the years 1 to 9999 that Python has"
            raise DataError(message) from error

    return timestamp


def _zone(name: str) -> datetime.tzinfo:
    if name.upper() in ("UTC", "+00:00", "Z"):
        return datetime.timezone.utc
    if name[:1] in "+-":
        sign = -1 if name[0] == "-" else 1
        digits = name[1:].replace(":", "")
        offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:4] or 0))
        return datetime.timezone(sign * offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DataError(f"Python knows no time zone {name}: the package tzdata has them") from error


# What Python gives, as pairs of a kind and what it holds.


def parameters(values: Any) -> Any:
    """Values of a statement's parameters: of a sequence by their places, of a mapping by their names."""
    if isinstance(values, Mapping):
        return {str(name).lstrip("$:"): _pair(value) for name, value in values.items()}
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise ProgrammingError(f"parameters are a list, a tuple or a dictionary, not {_kind(values)}")
    return [_pair(value) for value in values]


def _kind(value: Any) -> str:
    return type(value).__name__


def _pair(value: Any) -> tuple[str, Any]:
    simple = _simple(value)
    if simple is not None:
        return simple
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return "timestamp", (value - _EPOCH) // _MICROSECOND
        return "moment", (value - _EPOCH_UTC) // _MICROSECOND
    if isinstance(value, datetime.date):
        return "date", (value - _EPOCH_DAY) // _DAY
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise ProgrammingError("a time of the day with a zone cannot be a parameter")
        return "time", (datetime.datetime.combine(_EPOCH, value) - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.timedelta):
        return "interval", (value.days, (value - value.days * _DAY) // _MICROSECOND * 1000)
    if isinstance(value, (list, tuple)):
        return "list", [_pair(element) for element in value]
    # Numbers of NumPy.
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return _pair(value.item())
    raise ProgrammingError(f"a value of type {_kind(value)} cannot be a parameter")


def _simple(value: Any) -> tuple[str, Any] | None:
    if value is None:
        return "null", None
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return _whole(int(value))
    if isinstance(value, float):
        return "float", float(value)
    if isinstance(value, str):
        return "text", str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes", bytes(value)
    if isinstance(value, uuid.UUID):
        return "text", str(value)
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    return None


def _whole(value: int) -> tuple[str, Any]:
    if -(2**63) <= value < 2**63:
        return "int", value
    if 0 <= value < 2**64:
        return "unsigned", value
    return _decimal(decimal.Decimal(value))


def _decimal(value: decimal.Decimal) -> tuple[str, Any]:
    if not value.is_finite():
        return "float", float(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    places = max(len(digits) + max(exponent, 0), scale)
    if places > _MOST_DIGITS:
        raise ProgrammingError(f"a number of {places} digits cannot be a parameter: {_MOST_DIGITS} are the most")
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0)
    return "decimal", (-unscaled if sign else unscaled, max(places, 1), scale)
