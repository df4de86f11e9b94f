# Runs DuckDB for `kelpie bench`: a request a line on stdin, an answer a line on stdout, both JSON.
import json
import os
import sys
import time

# Answers have a channel of their own: what DuckDB prints, such as a progress bar, goes to stderr.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**fields):
    print(json.dumps(fields), file=answers, flush=True)


try:
    import duckdb
except ImportError as error:
    answer(error=f"{error}; install it with `{sys.executable} -m pip install duckdb`")
    sys.exit(0)

connection = duckdb.connect()
connection.execute("set enable_progress_bar = false")
answer(version=duckdb.__version__)
for line in sys.stdin:
    request = json.loads(line)
    try:
        start = time.perf_counter_ns()
        # The whole result (`execute` alone would stream it), without a conversion to Python's values.
        result = connection.sql(request["sql"])
        if hasattr(result, "materialize"):
            result = result.materialize() or result
        elif result is not None:
            result.execute()
        time_ns = time.perf_counter_ns() - start
        # The same run's rows, for comparison: their way out is not measured.
        if request.get("rows"):
            import pyarrow.ipc

            table = result.to_arrow_table() if hasattr(result, "to_arrow_table") else result.fetch_arrow_table()
            with pyarrow.ipc.new_file(request["rows"], table.schema) as file:
                file.write_table(table)
        answer(time_ns=time_ns)
    except Exception as error:
        answer(error=str(error))
