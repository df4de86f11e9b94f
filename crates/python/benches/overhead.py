"""How much longer `.sql(…).arrow()` takes in Python than the query in a session in Rust, which is what `last_timing` measures.

    python crates/python/benches/overhead.py [FOLDER OF TPC-H]
"""

import statistics
import sys
import time

import kelpie
import pyarrow

RUNS = 200


def main():
    rows = pyarrow.table({"k": [n % 100 for n in range(1_000_000)], "x": range(1_000_000)})
    session = kelpie.connect({"t": rows})
    queries = {
        "one row": "SELECT 1 AS n",
        "100 groups of 1 M rows": "SELECT k, sum(x) FROM t GROUP BY k",
        "1 M rows": "SELECT * FROM t",
        "100 groups, table by name": "SELECT k, sum(x) FROM rows GROUP BY k",
    }
    if len(sys.argv) > 1:
        for name in kelpie.connect(sys.argv[1]).tables():
            session.register(name, f"{sys.argv[1]}/{name}.parquet")
        queries["TPC-H, sum of lineitem"] = "SELECT l_returnflag, sum(l_quantity) FROM lineitem GROUP BY l_returnflag"
    print(f"{'':28}{'all':>10}{'session':>10}{'overhead':>10}  (ms, medians of {RUNS} runs)")
    for name, sql in queries.items():
        taken, inside = overhead(session, sql, rows)
        print(f"{name:28}{taken:10.3f}{inside:10.3f}{taken - inside:10.3f}")


def overhead(session, sql, rows):
    """Medians of many runs in milliseconds: in all, and of it in the session. The statement may name `rows`."""
    assert rows.num_rows > 0
    session.sql(sql).arrow()
    all_times, session_times = [], []
    for _ in range(RUNS):
        start = time.perf_counter()
        session.sql(sql).arrow()
        all_times.append((time.perf_counter() - start) * 1e3)
        session_times.append(session.last_timing()["total"])
    return statistics.median(all_times), statistics.median(session_times)


if __name__ == "__main__":
    main()
