"""What goes in: objects of other packages, and files."""

import datetime
import decimal

import duckdb
import kelpie
import pandas
import polars
import pyarrow
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest

ROWS = {
    "n": pyarrow.array([1, None, 3], pyarrow.int32()),
    "s": pyarrow.array(["a", None, "größer"]),
    "large": pyarrow.array(["a", None, "x" * 100], pyarrow.large_string()),
    "view": pyarrow.array(["a", None, "x" * 100], pyarrow.string_view()),
    "coded": pyarrow.array(["a", None, "a"]).dictionary_encode(),
    "d": pyarrow.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3.50")], pyarrow.decimal128(12, 2)),
    "at": pyarrow.array([datetime.datetime(2024, 1, 1), None, datetime.datetime(1900, 1, 1)], pyarrow.timestamp("us", "Europe/Berlin")),
    "list": pyarrow.array([[1, None], None, []], pyarrow.list_(pyarrow.int64())),
    "struct": pyarrow.array([{"a": 1}, None, {"a": None}], pyarrow.struct([("a", pyarrow.int64())])),
    "日本": pyarrow.array([True, None, False]),
}


def test_every_type_goes_through(session):
    rows = pyarrow.table(ROWS)
    found = session.sql("SELECT * FROM rows").arrow()
    assert found.column_names == rows.column_names
    for name in rows.column_names:
        assert found.column(name).to_pylist() == rows.column(name).to_pylist(), name
    assert session.sql('SELECT count(*), sum(n), max(s), sum(d), min("日本") FROM rows').fetchall() == [
        (3, 4, "größer", decimal.Decimal("-2.25"), False)
    ]


@pytest.mark.parametrize(
    "make",
    [
        pyarrow.table,
        lambda rows: pyarrow.table(rows).to_batches()[0],
        lambda rows: pyarrow.table(rows).to_reader(),
        lambda rows: pyarrow.table(rows).to_pandas(),
        lambda rows: polars.DataFrame(pyarrow.table(rows)),
        lambda rows: polars.DataFrame(pyarrow.table(rows)).lazy(),
        lambda rows: pyarrow.StructArray.from_arrays(list(rows.values()), list(rows)),
        lambda rows: duckdb.from_arrow(pyarrow.table(rows)),
        lambda rows: pyarrow.dataset.dataset(pyarrow.table(rows)),
        lambda rows: kelpie.connect(data={"rows": pyarrow.table(rows)}).sql("SELECT * FROM rows"),
    ],
    ids=["table", "batch", "reader", "pandas", "polars", "lazy", "structs", "duckdb", "dataset", "kelpie"],
)
def test_objects_by_name(session, make):
    frame = make({name: ROWS[name] for name in ["n", "s", "d"]})
    for _ in range(2):
        assert session.sql("SELECT sum(n), max(s) FROM frame").fetchall() == [(4, "größer")]
    session.register("other", frame)
    del frame
    assert session.sql("SELECT count(*) FROM other").fetchall() == [(3,)]


GLOBAL_ROWS = pyarrow.table({"n": [7]})


def test_which_variables_are_tables(session):
    rows = pyarrow.table({"n": [1]})  # noqa: F841
    MyRows = pyarrow.table({"n": [2]})  # noqa: F841, N806
    assert session.sql("SELECT n FROM rows").fetchone() == (1,)
    assert session.sql("SELECT n FROM MyRows").fetchone() == (2,)
    assert session.sql('SELECT n FROM "MyRows"').fetchone() == (2,)
    assert session.sql("SELECT n FROM GLOBAL_ROWS").fetchone() == (7,)
    assert session.sql("WITH rows AS (SELECT 5 AS n) SELECT n FROM rows").fetchone() == (5,)
    assert kelpie.sql("SELECT n FROM rows").fetchone() == (1,)
    # What the session has goes first.
    session.sql("CREATE TABLE rows AS SELECT 9 AS n")
    assert session.sql("SELECT n FROM rows").fetchone() == (9,)
    assert session.tables() == ["rows"]

    def inner():
        return session.sql("SELECT * FROM MyRows")

    # A variable of the caller's caller is none of the caller.
    with pytest.raises(kelpie.ProgrammingError):
        inner()


def test_a_result_keeps_what_its_variables_were(session):
    rows = pyarrow.table({"n": [1]})
    first = session.sql("SELECT n FROM rows")
    rows = pyarrow.table({"n": [2]})
    assert session.sql("SELECT n FROM rows").fetchall() == [(2,)]
    del rows
    assert first.fetchall() == [(1,)] and first.fetchall() == [(1,)]


def test_changed_frames(session):
    frame = pandas.DataFrame({"n": [1, 2, 3]})
    assert session.sql("SELECT sum(n) FROM frame").fetchone() == (6,)
    frame.loc[0, "n"] = 100
    assert session.sql("SELECT sum(n) FROM frame").fetchone() == (105,)
    frame = polars.DataFrame({"n": [1, 2, 3]})
    assert session.sql("SELECT sum(n) FROM frame").fetchone() == (6,)
    frame[0, "n"] = 100
    assert session.sql("SELECT sum(n) FROM frame").fetchone() == (105,)


def test_an_index_is_no_column(session):
    frame = pandas.DataFrame({"n": [1, 2]}, index=["a", "b"])  # noqa: F841
    assert session.sql("SELECT * FROM frame").columns == ["n"]
    assert session.sql("SELECT * FROM frame").df().index.tolist() == [0, 1]


def test_nothing_is_copied(session):
    values = pyarrow.array(range(1000))
    rows = pyarrow.table({"n": values})  # noqa: F841
    found = session.sql("SELECT * FROM rows").arrow()
    assert found.column(0).chunk(0).buffers()[1].address == values.buffers()[1].address


def test_empty_tables(session):
    rows = pyarrow.table({"n": pyarrow.array([], pyarrow.int64())})  # noqa: F841
    none = pyarrow.table({})  # noqa: F841
    assert session.sql("SELECT count(*), sum(n) FROM rows").fetchall() == [(0, None)]
    assert session.sql("SELECT count(*) FROM none").fetchall() == [(0,)]


def test_inserts_read_variables(session):
    rows = pyarrow.table({"n": [1, 2]})  # noqa: F841
    session.sql("CREATE TABLE t AS SELECT * FROM rows")
    session.sql("INSERT INTO t SELECT n + 10 FROM rows")
    assert session.sql("SELECT sum(n) FROM t").fetchone() == (26,)
    # A variable is never written.
    with pytest.raises(kelpie.Error):
        session.sql("INSERT INTO rows VALUES (3)")


def test_registered_tables(session):
    session.register("t", pyarrow.table({"n": [1]}))
    session.register("t", pyarrow.table({"m": [2]}))
    assert session.sql("SELECT * FROM t").columns == ["m"] and session.tables() == ["t"]
    with pytest.raises(kelpie.OperationalError, match="No such file"):
        session.register("t", "none.parquet")
    assert session.sql("SELECT * FROM t").columns == ["m"]
    session.unregister("t")
    assert session.tables() == []
    with pytest.raises(kelpie.ProgrammingError, match="there is no table t"):
        session.unregister("t")


@pytest.mark.parametrize("value", [5, 2.5, [1], {"a": 1}, pyarrow.table, pyarrow.array([1])])
def test_what_is_no_table(session, value):
    with pytest.raises((kelpie.InterfaceError, kelpie.ProgrammingError)):
        session.register("t", value)
    frame = value  # noqa: F841
    with pytest.raises(kelpie.Error):
        session.sql("SELECT * FROM frame")


def test_the_error_says_what_a_variable_is(session):
    frame = [1, 2]  # noqa: F841
    with pytest.raises(kelpie.ProgrammingError, match="the variable frame is of type list, which is no table"):
        session.sql("SELECT * FROM frame")


def test_a_stream_that_fails(session):
    def batches():
        yield pyarrow.record_batch({"n": [1]})
        raise ValueError("the source is gone")

    rows = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("n", pyarrow.int64())]), batches())  # noqa: F841
    with pytest.raises(kelpie.Error, match="the source is gone"):
        session.sql("SELECT * FROM rows")


def test_files(tmp_path):
    rows = pyarrow.table({"n": [1, 2, 3]})
    pyarrow.parquet.write_table(rows, tmp_path / "a.parquet")
    pyarrow.csv.write_csv(rows, tmp_path / "b.csv")
    for data in [tmp_path, str(tmp_path), [tmp_path / "a.parquet", tmp_path / "b.csv"]]:
        with kelpie.connect(data, device="cpu") as session:
            assert session.tables() == ["a", "b"]
            assert session.sql("SELECT sum(a.n) FROM a JOIN b ON a.n = b.n").fetchone() == (6,)
    with kelpie.connect({"x": tmp_path / "a.parquet", "y": rows}) as session:
        assert session.tables() == ["x", "y"]
    assert kelpie.sql(f"SELECT count(*) FROM '{tmp_path / 'a.parquet'}'").fetchone() == (3,)
    with pytest.raises(kelpie.Error):
        kelpie.connect(tmp_path / "none.parquet")
    with pytest.raises(kelpie.OperationalError, match="No such file"):
        kelpie.connect({"t": tmp_path / "none.parquet"})
