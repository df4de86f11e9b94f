# Runs DataFusion for `kelpie bench`: a request a line on stdin, an answer a line on stdout, both JSON.
import json
import os
import sys
import time

# Answers have a channel of their own.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**fields):
    print(json.dumps(fields), file=answers, flush=True)


try:
    import datafusion
    import pyarrow.ipc
except ImportError as error:
    answer(error=f"{error}; install it with `{sys.executable} -m pip install datafusion`")
    sys.exit(0)

context = None
answer(version=datafusion.__version__)
for line in sys.stdin:
    request = json.loads(line)
    try:
        start = time.perf_counter_ns()
        if "threads" in request:
            config = datafusion.SessionConfig().with_target_partitions(request["threads"])
            context = datafusion.SessionContext(config)
        elif "table" in request:
            name, path = request["table"], request["path"]
            if request["in_memory"]:
                context.register_record_batches(name, context.read_parquet(path).collect_partitioned())
            else:
                context.register_parquet(name, path)
        else:
            frame = context.sql(request["sql"])
            batches = frame.collect()
            time_ns = time.perf_counter_ns() - start
            # The same run's rows, for comparison: their way out is not measured.
            if request.get("rows"):
                schema = batches[0].schema if batches else frame.schema()
                with pyarrow.ipc.new_file(request["rows"], schema) as file:
                    for batch in batches:
                        file.write_batch(batch)
            answer(time_ns=time_ns)
            continue
        answer(time_ns=time.perf_counter_ns() - start)
    except Exception as error:
        answer(error=str(error))
