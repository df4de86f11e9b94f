"""Sessions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from . import _functions, _kelpie, _progress, _sources
from ._errors import InterfaceError, ProgrammingError
from ._result import Result

Path = str | os.PathLike[str]


class Session:
    """Tables, settings and prepared statements. Made by :func:`kelpie.connect`; any number of threads may use one.

    As a context manager it closes itself at the end.
    """

    def __init__(self, settings: dict[str, str], progress: bool | _progress.Progress | None = None):
        self._core = _kelpie.Session(list(settings.items()))
        self._progress = _progress.of(progress)

    def sql(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Result:
        """Plans a statement. A query runs when its rows are asked for, any other statement at once.

        A table that the session does not have may be a variable of the caller: a table of pyarrow, a frame of Pandas or Polars, or
        anything with ``__arrow_c_stream__``.

        :param params: values for ``?`` or ``$1``, ``$2``, … (a sequence), or for ``$name`` (a mapping).
        """
        return self._sql(query, params, sys._getframe(1))

    def _sql(self, query: str, params: Any, frame: FrameType | None) -> Result:
        is_query, missing = self._core.needs(query)
        tables = _sources.variables(missing, frame) if missing else {}
        try:
            return Result(self, query, params, tables, is_query)
        except ProgrammingError as error:
            hint = _sources.hint([name for name in missing if name not in tables], frame)
            if hint is None:
                raise
            raise ProgrammingError(f"{error}; {hint}") from None

    def _start(self, sql: str, values: Any, tables: dict[str, _kelpie.Table]) -> _kelpie.Rows:
        return self._core.start(sql, values, tables, self._progress)

    def _explain(self, sql: str, stage: str, tables: dict[str, _kelpie.Table]) -> str:
        return self._core.explain(sql, stage, tables)

    def register(self, name: str, source: Any) -> None:
        """Adds a table in place of one of that name: a path of files, or rows of another package.

        Files are read by each query; of an object in memory, the table has the rows that it has now.
        """
        if isinstance(source, (str, os.PathLike)):
            self._core.add_path(os.fspath(source), name)
        else:
            self._core.add_table(name, _sources.table_of(source))

    def unregister(self, name: str) -> None:
        """Removes a table."""
        if not self._core.remove_table(name):
            raise ProgrammingError(f"there is no table {name}")

    def tables(self) -> list[str]:
        """The names of the tables."""
        return self._core.tables()

    def set(self, name: str, value: Any) -> None:
        """Sets an option, as ``SET name = value`` does."""
        self._core.set(name, _setting(value))

    def create_function(
        self,
        name: str,
        function: Callable[..., Any],
        arg_types: Sequence[Any],
        return_type: Any,
        *,
        volatile: bool = False,
    ) -> None:
        """Adds a scalar function, in place of one of that name.

        It is called with arrays of pyarrow, one an argument, and gives an array of as many values, or one value for all. It may be
        called on any thread, several times at once.

        :param arg_types: a type an argument: one of pyarrow, a name of SQL such as ``"bigint"``, or ``int``, ``float``, ``str``, …
        :param volatile: whether it may give another value for the same arguments. What others have computed may be kept.
        """
        types = [_functions.type_of(kind) for kind in arg_types]
        returns = self._core.type_of(_functions.type_of(return_type))
        called = _functions.over_arrays(name, function, returns)
        self._core.add_function(name.lower(), called, (types, returns), volatile)

    def last_timing(self) -> dict[str, Any] | None:
        """What the last query took whose rows all have come.

        In milliseconds ``total``, and of it ``planning``, ``compiling`` (kernels), ``transfer`` (reading columns, and moving them to
        the device), ``kernels`` and ``result``; the ``device``, ``None`` where nothing was compiled; ``not_compiled`` has the reasons
        of what ran on DataFusion's own operators.
        """
        return self._core.last_timing()

    def close(self) -> None:
        """Ends the session. Results that have begun to give rows go on."""
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._core.closed

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<kelpie.Session, closed>"
        return f"<kelpie.Session of {len(self.tables())} tables>"


def connect(
    data: Path | Sequence[Path] | Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    progress: bool | _progress.Progress | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Session:
    """Opens a session.

    :param data: a file of Parquet, CSV, JSON or Arrow, a folder of such files, a pattern, or several of them, each file and folder
        a table by its name; or a dictionary of tables by their names, of paths or of objects in memory.
    :param device: where queries run: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"simt"``.
    :param progress: whether a query that takes long says so on the standard error; where it is left out, in terminals and
        notebooks. Or a function that is called with the seconds so far, and with ``None`` at the end.
    :param settings: settings by their names, ``{"datafusion.execution.batch_size": 1024}``.
    :param options: options of Kelpie, ``threads=4`` for ``kelpie.threads``.
    """
    all_settings = {} if device is None else {"kelpie.device": str(device)}
    all_settings.update((f"kelpie.{name}", _setting(value)) for name, value in options.items())
    all_settings.update((name, _setting(value)) for name, value in (settings or {}).items())
    session = Session(all_settings, progress)
    if isinstance(data, Mapping):
        for name, source in data.items():
            session.register(name, source)
    elif data is not None:
        for path in [data] if isinstance(data, (str, os.PathLike)) else data:
            if not isinstance(path, (str, os.PathLike)):
                raise InterfaceError(f"data are paths, or a dictionary of tables; not {type(path).__name__}")
            for problem in session._core.add_path(os.fspath(path)):
                warnings.warn(problem, stacklevel=2)
    return session


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
