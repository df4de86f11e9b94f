"""Kelpie compiles SQL for the device at hand.

>>> import kelpie
>>> kelpie.sql("SELECT 6 * 7 AS answer").fetchone()
(42,)
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ._datafusion import install
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
from ._kelpie import __version__, end
from ._result import Result
from ._session import Session, connect
from ._values import Interval

__all__ = [
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interval",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Result",
    "Session",
    "Warning",
    "__version__",
    "connect",
    "default_session",
    "install",
    "sql",
]

atexit.register(end)

_default: Session | None = None
_opening = threading.Lock()


def default_session() -> Session:
    """The session of :func:`kelpie.sql`, opened when it is first asked for."""
    global _default
    with _opening:
        if _default is None or _default.closed:
            _default = connect()
        return _default


def sql(query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Result:
    """Plans a statement in the default session: see :meth:`Session.sql`."""
    return default_session()._sql(query, params, sys._getframe(1))
