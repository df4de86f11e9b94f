"""What comes out: every type as objects of Python and for other packages, lazily."""

import datetime
import decimal
import threading
import zoneinfo

import kelpie
import pandas
import polars
import pyarrow
import pytest

D = decimal.Decimal


def one(session, sql, params=None):
    (row,) = session.sql(sql, params).fetchall()
    return row if len(row) != 1 else row[0]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("NULL", None),
        ("true", True),
        ("CAST(-7 AS TINYINT)", -7),
        ("9223372036854775807", 2**63 - 1),
        ("CAST(18446744073709551615 AS BIGINT UNSIGNED)", 2**64 - 1),
        ("CAST(1.5 AS REAL)", 1.5),
        ("CAST('nan' AS DOUBLE) = CAST('nan' AS DOUBLE)", True),
        ("'naïve 日本 🐎'", "naïve 日本 🐎"),
        ("''", ""),
        ("arrow_cast('x', 'LargeUtf8')", "x"),
        ("arrow_cast('x', 'Utf8')", "x"),
        ("arrow_cast('x', 'Dictionary(Int32, Utf8)')", "x"),
        ("X'00ff'", b"\x00\xff"),
        ("CAST(12.340 AS DECIMAL(10, 3))", D("12.340")),
        ("CAST('-99999999999999999999999999999999999.123' AS DECIMAL(38, 3))", D("-99999999999999999999999999999999999.123")),
        ("DATE '1969-07-20'", datetime.date(1969, 7, 20)),
        ("TIMESTAMP '1969-07-20 20:17:40.123456'", datetime.datetime(1969, 7, 20, 20, 17, 40, 123456)),
        (
            "arrow_cast('2024-07-01T12:00:00Z', 'Timestamp(Millisecond, Some(\"Europe/Berlin\"))')",
            datetime.datetime(2024, 7, 1, 14, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        ),
        (
            "arrow_cast('2024-07-01T12:00:00Z', 'Timestamp(Second, Some(\"+05:30\"))')",
            datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc),
        ),
        ("TIME '23:59:58.5'", datetime.time(23, 59, 58, 500000)),
        ("arrow_cast(1500, 'Duration(Millisecond)')", datetime.timedelta(seconds=1.5)),
        ("INTERVAL '1 month 2 days 3 seconds'", kelpie.Interval(1, 2, 3_000_000_000)),
        ("[1, NULL, 3]", [1, None, 3]),
        ("[['a'], NULL]", [["a"], None]),
        ("named_struct('a', 1, 'b', [NULL, 'x'])", {"a": 1, "b": [None, "x"]}),
        ("map(['a', 'b'], [1, NULL])", {"a": 1, "b": None}),
    ],
)
def test_values(session, sql, value):
    found = one(session, f"SELECT {sql} AS v")
    assert found == value and type(found) is type(value)


def test_times_keep_their_zone(session):
    found = one(session, "SELECT arrow_cast('2024-07-01T12:00:00Z', 'Timestamp(Second, Some(\"Europe/Berlin\"))') AS v")
    assert (found.hour, found.utcoffset()) == (14, datetime.timedelta(hours=2))


def test_a_time_that_python_does_not_have_is_an_error(session):
    with pytest.raises(kelpie.DataError, match="years 1 to 9999"):
        session.sql("SELECT arrow_cast(4000000000000, 'Timestamp(Second, None)') AS v").fetchall()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**63),
        2**64 - 1,
        2.5,
        "日本",
        b"\x00",
        D("-12.340"),
        D("1e3"),
        D(10**37),
        datetime.date(1, 1, 1),
        datetime.datetime(1969, 7, 20, 20, 17, 40, 999999),
        datetime.datetime(2024, 1, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=5))),
        datetime.time(1, 2, 3, 4),
        [1, None, 3],
        ["a", "b"],
    ],
)
def test_parameters_come_back_as_they_are(session, value):
    for sql, params in [("SELECT ? AS v", [value]), ("SELECT $1 AS v", (value,)), ("SELECT $v AS v", {"v": value})]:
        assert one(session, sql, params) == value


def test_parameters(session):
    assert session.sql("SELECT '?' || ?, ? -- ?\n", ["a", 2]).fetchall() == [("?a", 2)]
    days = session.sql("SELECT DATE '2024-03-01' + CAST(? AS INTERVAL)", [datetime.timedelta(days=2)]).fetchone()
    assert str(days[0])[:10] == "2024-03-03"
    uuid = __import__("uuid").UUID(int=5)
    assert one(session, "SELECT ?", [uuid]) == str(uuid)
    assert one(session, "SELECT ?", [__import__("numpy").int32(5)]) == 5
    session.sql("CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(k, s)")
    assert session.sql("SELECT s FROM t WHERE k = ? OR s IS NULL ORDER BY k LIMIT ?", [1, 5]).fetchall() == [("a",), (None,)]
    session.sql("INSERT INTO t VALUES (?, ?)", [3, "c"])
    session.sql("INSERT INTO t VALUES (?, ?)", [0, None])
    assert one(session, "SELECT count(*) FROM t WHERE k > $least", {"least": 1}) == 2


@pytest.mark.parametrize(
    ("sql", "params", "message"),
    [
        ("SELECT ?, ?", [1], r"none for \$2"),
        ("SELECT ?", [1, 2], r"no \$2"),
        ("SELECT $a", {"b": 1}, r"none for \$a"),
        ("SELECT ?", [object()], "object cannot be a parameter"),
        ("SELECT ?", "text", "a list, a tuple or a dictionary, not str"),
        ("SELECT ?", [D(10**40)], "41 digits"),
    ],
)
def test_wrong_parameters(session, sql, params, message):
    with pytest.raises(kelpie.ProgrammingError, match=message):
        session.sql(sql, params)


SQL = "SELECT * FROM (VALUES (1, 'a', 1.50), (2, NULL, NULL), (NULL, 'ü', 2.25)) AS v(n, \"große Zahl\", d)"


def test_for_other_packages(session):
    result = session.sql(SQL)
    assert result.columns == ["n", "große Zahl", "d"] and len(result.types) == 3
    table = result.arrow()
    assert isinstance(table, pyarrow.Table) and table.column("große Zahl").to_pylist() == ["a", None, "ü"]
    assert table.schema.field(1).type == pyarrow.string() and result.schema.names == table.schema.names
    frame = result.df()
    assert isinstance(frame, pandas.DataFrame) and list(frame["n"].dropna()) == [1, 2]
    assert isinstance(result.pl(), polars.DataFrame) and result.pl()["n"].to_list() == [1, 2, None]
    assert pyarrow.table(result).num_rows == 3 and polars.DataFrame(result).height == 3
    batches = list(result)
    assert all(isinstance(batch, pyarrow.RecordBatch) for batch in batches) and sum(map(len, batches)) == 3
    assert pyarrow.schema(result).names == result.columns


def test_a_schema_that_is_asked_for(session):
    def read(result, *fields):
        return pyarrow.RecordBatchReader.from_stream(result, schema=pyarrow.schema(fields)).read_all()

    result = session.sql("SELECT value AS n, 'x' AS s FROM range(1000)")
    fields = [("n", pyarrow.int32()), ("s", pyarrow.large_string())]
    assert read(result, *fields).schema == pyarrow.schema(fields)
    # What cannot be is left to who asks, and a value that does not fit is an error, never NULL.
    assert read(result, ("m", pyarrow.int32()), ("s", pyarrow.string())).column_names == ["n", "s"]
    with pytest.raises(pyarrow.ArrowException):
        read(result, ("n", pyarrow.int8()), ("s", pyarrow.string()))


def test_nothing(session):
    result = session.sql("SELECT 1 AS n, 'a' AS s WHERE false")
    assert result.arrow().num_rows == 0 and result.df().shape == (0, 2) and result.pl().shape == (0, 2)
    assert result.fetchall() == [] and result.fetchone() is None and list(result.columns) == ["n", "s"]


def test_rows_one_after_another(session):
    result = session.sql("SELECT value FROM range(5)")
    assert result.fetchone() == (0,) and result.fetchmany(2) == [(1,), (2,)] and result.fetchall() == [(3,), (4,)]
    # From the start.
    assert len(result.fetchall()) == 5 and result.fetchmany(9) == [(n,) for n in range(5)]


def test_a_query_runs_when_it_is_asked_and_each_time(session):
    session.sql("CREATE TABLE t AS SELECT 1 AS n")
    result = session.sql("SELECT sum(n) FROM t")
    assert result.fetchall() == [(1,)]
    assert session.sql("INSERT INTO t VALUES (10)").fetchall() == [(1,)]
    assert result.fetchall() == [(11,)]


def test_for_people(session, capsys):
    result = session.sql(SQL + " UNION ALL SELECT 4, '<b>', NULL ORDER BY 1")
    result.show()
    shown = capsys.readouterr().out
    assert "große Zahl" in shown and "NULL" in shown and "ü" in shown and repr(result) == shown.rstrip("\n")
    assert "&lt;b&gt;" in result._repr_html_() and "<i>NULL</i>" in result._repr_html_()
    assert repr(session.sql("CREATE TABLE t AS SELECT 1 AS n")) == "(no columns)"
    many = session.sql("SELECT * FROM range(1000)")
    many.show(3)
    assert "the first 3 rows" in capsys.readouterr().out and "the first 20 rows" in many._repr_html_()


def test_explain(session):
    session.sql("CREATE TABLE t AS SELECT value AS n FROM range(1000)")
    result = session.sql("SELECT n % 10, count(*) FROM t WHERE n > ? GROUP BY 1", [5])
    assert "KelpieExec" in result.explain() and "KelpieExec" in result.explain(analyze=True)
    result = session.sql("SELECT n % 10, count(*) FROM t GROUP BY 1")
    for stage in ["plan", "variants", "pipelines", "kir", "code"]:
        assert result.explain(stage=stage)
    with pytest.raises(kelpie.ProgrammingError, match="there is no stage ast"):
        result.explain(stage="ast")


def test_threads(session):
    session.sql("CREATE TABLE t AS SELECT value AS n FROM range(100000)")
    found, result = [], session.sql("SELECT sum(n) FROM t")

    def ask(divisor):
        frame = pyarrow.table({"d": [divisor]})  # noqa: F841 - found by name
        found.append((divisor, *session.sql("SELECT count(*) FROM t, frame WHERE n % d = 0").fetchone()))

    threads = [threading.Thread(target=ask, args=(divisor,)) for divisor in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(d, -(-100000 // d)) for d in range(1, 9)] and result.fetchone() == (4999950000,)
