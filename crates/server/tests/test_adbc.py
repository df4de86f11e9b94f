"""The driver of ADBC for Flight SQL."""

import concurrent.futures
import decimal
import re
import subprocess
import threading
import time

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pyarrow.ipc
import pytest
from adbc_driver_flightsql import ConnectionOptions, DatabaseOptions
from conftest import REPOSITORY, query

BATCH_SIZE = "SELECT value FROM information_schema.df_settings WHERE name = 'datafusion.execution.batch_size'"


def connect(server, options=None):
    return adbc.connect(server.uri, db_kwargs=options or {}, autocommit=True)


def rows(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetch_arrow_table().to_pylist()


@pytest.fixture
def connection(server):
    with connect(server) as connection:
        yield connection


@pytest.mark.parametrize("name", [f"q{number:02}" for number in range(1, 23)])
def test_tpch_is_what_the_program_itself_answers(name, program, tpch, connection, tmp_path):
    file, text = tmp_path / "rows.arrow", tmp_path / "query.sql"
    text.write_text(query(name))
    command = [program, "--device", "cpu", "--data", tpch, "-f", text, "--output", file]
    subprocess.run(command, check=True, capture_output=True)
    with pa.memory_map(str(file)) as source:
        expected = pa.ipc.open_file(source).read_all()
    with connection.cursor() as cursor:
        cursor.execute(query(name))
        found = cursor.fetch_arrow_table()
    assert found.column_names == expected.column_names and len(found) == len(expected)
    for one, other in zip(sorted(found.to_pylist(), key=key), sorted(expected.to_pylist(), key=key)):
        for name, value in other.items():
            assert one[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


def test_what_the_book_shows_runs(server):
    page = (REPOSITORY / "docs/book/src/server.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "grpc://127.0.0.1:32010" in code
    exec(compile(code.replace("grpc://127.0.0.1:32010", server.uri), "server.md", "exec"), {"__name__": "page"})


def key(row):
    """Rows of equal ranks come in any order; sums of floating-point numbers differ in their last digits."""
    return [f"{value:.6g}" if isinstance(value, (float, decimal.Decimal)) else str(value) for value in row.values()]


def test_values_types_and_nulls_come_through(connection):
    sql = "SELECT 1 AS i, 'ä' AS t, NULL AS n, 1.5::DOUBLE AS f, DATE '2024-02-29' AS d, 12.30::DECIMAL(9,2) AS m, [1, NULL] AS l, true AS b"
    [row] = rows(connection, sql)
    assert row["t"] == "ä" and row["n"] is None and row["f"] == 1.5 and row["b"] is True
    assert row["d"].isoformat() == "2024-02-29" and row["m"] == decimal.Decimal("12.30") and row["l"] == [1, None]
    assert rows(connection, "SELECT n_name FROM nation WHERE n_nationkey < 0") == []


def test_prepared_statements_take_parameters(connection):
    sql = "SELECT n_name FROM nation WHERE n_nationkey = ?"
    with connection.cursor() as cursor:
        for number, name in [(0, "ALGERIA"), (24, "UNITED STATES"), (99, None)]:
            cursor.execute(sql, (number,))
            assert cursor.fetchall() == ([(name,)] if name else [])
    assert rows(connection, "SELECT $1::BIGINT + $2::BIGINT AS sum", (40, 2)) == [{"sum": 42}]
    with pytest.raises(adbc_driver_manager.Error, match="parameters"):
        rows(connection, sql, (1, 2))


def test_the_catalogue_is_listed(connection):
    assert connection.adbc_get_info()["vendor_name"] == "Kelpie"
    [catalog] = connection.adbc_get_objects(depth="all", table_name_filter="region").read_all().to_pylist()
    [schema] = [schema for schema in catalog["catalog_db_schemas"] if schema["db_schema_tables"]]
    [table] = schema["db_schema_tables"]
    assert table["table_name"] == "region" and table["table_type"] == "TABLE"
    assert [column["column_name"] for column in table["table_columns"]] == ["r_regionkey", "r_name", "r_comment"]
    assert connection.adbc_get_table_schema("region").names == ["r_regionkey", "r_name", "r_comment"]
    assert "TABLE" in connection.adbc_get_table_types()
    assert connection.adbc_current_catalog == "datafusion" and connection.adbc_current_db_schema == "public"


def test_settings_are_the_connection_s_own(server):
    cookies = {DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}
    with connect(server) as one, connect(server) as two, connect(server, cookies) as three:
        for number, connection in enumerate([one, two, three]):
            with connection.cursor() as cursor:
                cursor.execute(f"SET datafusion.execution.batch_size = {1000 + number}")
        for number, connection in enumerate([one, two, three]):
            assert rows(connection, BATCH_SIZE) == [{"value": str(1000 + number)}]
        name = ConnectionOptions.OPTION_SESSION_OPTION_PREFIX.value + "kelpie.threads"
        three.adbc_connection.set_options(**{name: "3"})
        assert rows(three, "SHOW kelpie.threads")[0]["value"] == "3"
        with pytest.raises(adbc_driver_manager.Error):
            three.adbc_connection.set_options(**{name: "many"})


def test_32_clients_at_once(server):
    def work(number):
        with connect(server) as connection:
            for _ in range(3):
                sql = f"SELECT count(*) AS n, sum(o_totalprice) AS s FROM orders WHERE o_orderkey % 32 = {number}"
                [row] = rows(connection, sql)
            [all_rows] = rows(connection, f"SELECT {number} AS k, count(*) AS n FROM lineitem")
            assert all_rows == {"k": number, "n": 600572}
            return row["n"]

    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        assert sum(threads.map(work, range(32))) == 150000


def test_a_statement_is_cancelled(server):
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT a.value FROM generate_series(1, 10000000) a, generate_series(1, 1000000) b")
        threading.Timer(0.5, cursor.adbc_cancel).start()
        start = time.monotonic()
        with pytest.raises((adbc_driver_manager.Error, pa.ArrowException, OSError)):
            cursor.fetch_arrow_table()
        assert time.monotonic() - start < 60
        # The connection is good for more.
        assert rows(connection, "SELECT 1 AS one") == [{"one": 1}]


def test_secrets_are_asked_for(serve, tmp_path):
    (tmp_path / "tokens").write_text("s3cret\n")
    (tmp_path / "users").write_text("ann:pass:word\n")
    with serve("--tokens", tmp_path / "tokens", "--users", tmp_path / "users") as server:
        header = DatabaseOptions.AUTHORIZATION_HEADER.value
        for options in [{header: "Bearer s3cret"}, {"username": "ann", "password": "pass:word"}]:
            with connect(server, options) as connection:
                assert rows(connection, "SELECT 1 AS one") == [{"one": 1}]
        for options in [{}, {header: "Bearer wrong"}, {"username": "ann", "password": "wrong"}]:
            with pytest.raises(adbc_driver_manager.Error, match="(?i)unauthenticated"):
                with connect(server, options) as connection:
                    rows(connection, "SELECT 1")


def test_writes_are_refused_or_allowed(server, serve, tmp_path):
    with connect(server) as connection, pytest.raises(adbc_driver_manager.Error, match="only reads"):
        rows(connection, f"COPY nation TO '{tmp_path}/x.csv'")
    with connect(server) as connection, pytest.raises(adbc_driver_manager.Error, match="was given"):
        rows(connection, "SELECT * FROM read_csv('/etc/passwd')")
    with serve("--allow-writes") as writing, connect(writing) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE own (a BIGINT, b VARCHAR)")
        cursor.executemany("INSERT INTO own VALUES (?, ?)", [(1, "x"), (2, None), (3, "ä")])
        cursor.execute("SELECT a, b FROM own ORDER BY a")
        assert cursor.fetchall() == [(1, "x"), (2, None), (3, "ä")]
        cursor.execute(f"COPY own TO '{tmp_path}/own.csv'")
        cursor.fetchall()
        assert (tmp_path / "own.csv").read_text().splitlines()[0] == "a,b"
