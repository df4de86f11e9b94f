"""Kelpie inside sessions of the package datafusion."""

import kelpie
import pyarrow
import pytest
from conftest import query

datafusion = pytest.importorskip("datafusion")
if not hasattr(kelpie._kelpie, "DataFusionExtension"):
    pytest.skip("built without the feature datafusion-package", allow_module_level=True)


@pytest.fixture(scope="module")
def contexts(tpch):
    """A session with Kelpie, and one without."""
    plain, other = datafusion.SessionContext(), datafusion.SessionContext()
    for context in [plain, other]:
        for file in tpch.glob("*.parquet"):
            context.register_parquet(file.stem, str(file))
    return kelpie.install(other, device="cpu"), plain


@pytest.mark.parametrize("name", [f"q{number:02}" for number in range(1, 23)])
def test_answers_are_the_same(contexts, name):
    context, plain = contexts
    found = context.sql(query(name))
    assert "KelpieExec" in found.execution_plan().display_indent()
    rows, expected = (pyarrow.Table.from_batches(frame.collect(), frame.schema()) for frame in [found, plain.sql(query(name))])
    assert rows.to_pylist() == expected.to_pylist()


def test_tables_in_memory():
    context = kelpie.install(datafusion.SessionContext(), device="cpu")
    context.from_pydict({"k": [1, 2, 1], "x": [1.5, None, 2.5]}, name="t")
    assert context.sql("SELECT k, sum(x) AS x FROM t GROUP BY k ORDER BY k").to_pylist() == [{"k": 1, "x": 4.0}, {"k": 2, "x": None}]
    assert context.table("t").filter(datafusion.col("k") == 1).count() == 2


def test_functions_in_python():
    context = kelpie.install(datafusion.SessionContext(), device="cpu")
    context.from_pydict({"k": [1, 2]}, name="t")
    double = datafusion.udf(lambda values: pyarrow.compute.multiply(values, 2), [pyarrow.int64()], pyarrow.int64(), "stable", name="double")
    context.register_udf(double)
    assert context.sql("SELECT double(k) AS d FROM t ORDER BY d").to_pylist() == [{"d": 2}, {"d": 4}]


def test_errors_and_writes(tmp_path):
    context = kelpie.install(datafusion.SessionContext(), device="cpu")
    with pytest.raises(Exception, match="nowhere"):
        context.sql("SELECT * FROM nowhere")
    with pytest.raises(Exception, match="(?i)divide by zero"):
        context.sql("SELECT 1 / (value - 1) FROM range(3)").collect()
    context.from_pydict({"k": [1, 2]}, name="t")
    context.sql("CREATE TABLE u AS SELECT k + 1 AS k FROM t").collect()
    assert context.sql("SELECT sum(k) AS s FROM u").to_pylist() == [{"s": 5}]
    with pytest.raises(kelpie.ProgrammingError, match="nonsense"):
        kelpie.install(datafusion.SessionContext(), nonsense=1)
