"""TPC-H through frames of Pandas, beside DuckDB."""

import decimal

import duckdb
import kelpie
import pandas
import pytest
from conftest import query


@pytest.fixture(scope="module")
def both(tpch):
    session = kelpie.connect(tpch, device="cpu")
    peer = duckdb.connect()
    for name in session.tables():
        peer.execute(f"CREATE VIEW {name} AS SELECT * FROM '{tpch}/{name}.parquet'")
    return session, peer


@pytest.mark.parametrize("name", [f"q{number:02}" for number in range(1, 23)])
def test_answers_are_those_of_duckdb(both, name):
    session, peer = both
    found, expected = session.sql(query(name)).df(), peer.sql(query(name)).df()
    assert list(found.columns) == list(expected.columns) and len(found) == len(expected)
    for column in expected.columns:
        for one, other in zip(found[column].map(plain), expected[column].map(plain)):
            assert one == (pytest.approx(other, rel=1e-6, abs=1e-6) if isinstance(other, float) else other), column


def plain(value):
    """Dates as days and numbers as numbers: DuckDB gives averages of decimals as floating-point numbers, of more digits."""
    if isinstance(value, (decimal.Decimal, int)):
        return float(value)
    if hasattr(value, "isoformat"):
        return pandas.Timestamp(value)
    return value
