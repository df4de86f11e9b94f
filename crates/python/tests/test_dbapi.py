"""DB-API 2.0 (PEP 249)."""

import datetime

import kelpie
import pyarrow
import pytest
from kelpie import dbapi


@pytest.fixture
def connection():
    with dbapi.connect(device="cpu") as connection:
        yield connection


def test_the_module():
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    for name in dbapi.__all__:
        assert hasattr(dbapi, name)
    assert dbapi.Error is kelpie.Error and dbapi.Connection.DataError is kelpie.DataError
    assert dbapi.Timestamp(2024, 1, 2) == datetime.datetime(2024, 1, 2)
    assert dbapi.DateFromTicks(86400 * 365).year == 1971 and dbapi.Binary(b"x") == b"x"
    assert isinstance(dbapi.TimeFromTicks(0), datetime.time) and isinstance(dbapi.TimestampFromTicks(0), datetime.datetime)


def test_rows(connection):
    cursor = connection.cursor()
    assert cursor.description is None and cursor.rowcount == -1
    cursor.execute("CREATE TABLE t (n BIGINT, s VARCHAR, d DATE)")
    cursor.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, str(n), datetime.date(2024, 1, n)) for n in range(1, 6)])
    cursor.execute("SELECT * FROM t WHERE n > ? ORDER BY n", [1])
    assert [column[0] for column in cursor.description] == ["n", "s", "d"]
    assert [column[1] == kind for column, kind in zip(cursor.description, [dbapi.NUMBER, dbapi.STRING, dbapi.DATETIME])] == [True] * 3
    assert dbapi.BINARY != dbapi.STRING and dbapi.NUMBER != "Utf8"
    assert cursor.fetchone() == (2, "2", datetime.date(2024, 1, 2))
    assert [row[0] for row in cursor.fetchmany(2)] == [3, 4]
    assert [row[0] for row in cursor] == [5]
    assert cursor.fetchone() is None and cursor.fetchall() == [] and cursor.fetchmany() == []
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]
    cursor.setinputsizes([1])
    cursor.setoutputsize(1)


def test_variables_are_tables(connection):
    rows = pyarrow.table({"n": [1, 2]})  # noqa: F841
    assert connection.cursor().execute("SELECT sum(n) FROM rows").fetchall() == [(3,)]


def test_wrong_uses(connection):
    cursor = connection.cursor()
    for use in [cursor.fetchone, cursor.fetchall]:
        with pytest.raises(dbapi.ProgrammingError, match="no statement was executed"):
            use()
    with pytest.raises(dbapi.ProgrammingError):
        cursor.execute("SELECT * FROM nowhere")
    with pytest.raises(dbapi.ProgrammingError, match="no statement was executed"):
        cursor.fetchone()
    connection.commit()
    with pytest.raises(dbapi.NotSupportedError):
        connection.rollback()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="the cursor is closed"):
        cursor.execute("SELECT 1")
    other = connection.cursor()
    connection.close()
    for use in [connection.cursor, connection.close, connection.commit, lambda: other.execute("SELECT 1")]:
        with pytest.raises(dbapi.InterfaceError, match="the connection is closed"):
            use()
