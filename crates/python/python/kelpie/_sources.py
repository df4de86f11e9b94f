"""Objects of other packages as tables."""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any

from . import _kelpie
from ._errors import InterfaceError

# By the identity of an object that is still there: what was made of it. Columns that the engine has read of a table are found
# again as long as this is the same table.
_known: dict[int, tuple[weakref.ref[Any], _kelpie.Table]] = {}


def is_table(value: Any) -> bool:
    """Whether queries may read it."""
    if isinstance(value, type):
        return False
    return _is_of(value, "pandas", "DataFrame") or _has_capsule(value) or _read_whole(value) is not None


def table_of(value: Any) -> _kelpie.Table:
    """The rows of an object; those of one that cannot change are taken once.

    A stream is read to its end, and its rows stay as long as the object does.
    """
    if _is_of(value, "pandas", "DataFrame"):
        # Its index is no column, and its values may change in place.
        import pyarrow

        return _kelpie.Table(pyarrow.Table.from_pandas(value, preserve_index=False))
    whole = _read_whole(value)
    if whole is not None:
        return _kelpie.Table(whole())
    if isinstance(value, type) or not _has_capsule(value):
        raise InterfaceError(f"a value of type {type(value).__name__} is no table: it has no __arrow_c_stream__")
    known = _known.get(id(value))
    if known is not None and known[0]() is value:
        if _never_changes(value):
            return known[1]
        table = known[1].or_changed(_kelpie.Table(value))
    else:
        table = _kelpie.Table(value)
    _remember(value, table)
    return table


def variables(names: list[str], frame: FrameType | None) -> dict[str, _kelpie.Table]:
    """Tables by their names, of the variables that code sees which is about to be run in a frame."""
    found = {}
    for name in names:
        value = _variable(name, frame)
        if value is not None and is_table(value):
            found[name] = table_of(value)
    return found


def hint(names: list[str], frame: FrameType | None) -> str | None:
    """Why a variable with the name of a table that is not there is none."""
    for name in names:
        value = _variable(name, frame)
        if value is not None and not is_table(value) and not callable(value):
            return f"the variable {name} is of type {type(value).__name__}, which is no table"
    return None


def _variable(name: str, frame: FrameType | None) -> Any:
    if frame is None:
        return None
    for scope in (frame.f_locals, frame.f_globals):
        if name in scope:
            return scope[name]
    # SQL means the same by `Orders` and `orders`.
    for scope in (frame.f_locals, frame.f_globals):
        alike = [known for known in scope if known.lower() == name.lower()]
        if len(alike) == 1:
            return scope[alike[0]]
    return None


def _remember(value: Any, table: _kelpie.Table) -> None:
    identity = id(value)
    try:
        reference = weakref.ref(value, lambda _: _known.pop(identity, None))
    except TypeError:
        return
    _known[identity] = (reference, table)


def _has_capsule(value: Any) -> bool:
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def _never_changes(value: Any) -> bool:
    """Arrow's own tables do not change, and a stream is read once."""
    return type(value).__module__.startswith("pyarrow") or isinstance(value, _kelpie.Rows)


def _read_whole(value: Any) -> Any:
    """What reads an object that has its rows elsewhere: a lazy frame of Polars, a data set of Arrow."""
    if _is_of(value, "polars", "LazyFrame"):
        return value.collect
    dataset = sys.modules.get("pyarrow.dataset")
    if dataset is not None and isinstance(value, dataset.Dataset):
        return value.to_table
    return None


def _is_of(value: Any, package: str, name: str) -> bool:
    """Whether it is of a class of a package, which is loaded if it is."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
