"""How fast rows come from `kelpie serve` by ADBC, beside `pyarrow.flight`'s own server that gives the same rows from memory.

    python crates/server/benches/throughput.py target/release/kelpie [--rows 10000000] [--rounds 5]

Needs `adbc-driver-flightsql`, `adbc-driver-manager` and `pyarrow`. Rounds of both take turns; what is printed is each one's best and
median, and the ratio of the medians. The server of `pyarrow.flight` has its batches ready: it neither plans nor reads.
"""

import argparse
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.compute
import pyarrow.flight as flight
import pyarrow.parquet

PEER = """
import sys, pyarrow as pa, pyarrow.flight as flight, pyarrow.parquet as parquet
table = parquet.read_table(sys.argv[1])
class Server(flight.FlightServerBase):
    def do_get(self, context, ticket):
        return flight.RecordBatchStream(table)
server = Server("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
"""


def data(rows, path):
    numbers = pa.array(range(rows), pa.int64())
    batch = 1 << 20
    generator = random.Random(1)
    words = [f"customer-{generator.randrange(10**6):06}" for _ in range(batch)]
    texts = pa.chunked_array([pa.array(words[: min(batch, rows - start)]) for start in range(0, rows, batch)])
    prices = pa.compute.multiply(pa.compute.cast(numbers, pa.float64()), 0.25)
    pa.parquet.write_table(pa.table({"k": numbers, "price": prices, "name": texts}), path, compression="lz4")


def timed(ask):
    start = time.perf_counter()
    rows, size = 0, 0
    for batch in ask():
        rows, size = rows + batch.num_rows, size + batch.nbytes
    return rows, size, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.parquet"
        data(arguments.rows, path)
        command = [arguments.program, "serve", "--listen", "127.0.0.1:0", "--data", path, "--quiet"]
        kelpie = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        peer = subprocess.Popen([sys.executable, "-c", PEER, path], stdout=subprocess.PIPE, text=True)
        try:
            address = re.search(r"grpc://(\S+)", kelpie.stderr.readline())[1]
            port = int(peer.stdout.readline())
            with adbc.connect(f"grpc://{address}", autocommit=True) as connection:
                client = flight.connect(f"grpc://127.0.0.1:{port}")
                direct = flight.connect(f"grpc://{address}")

                def of_kelpie():
                    with connection.cursor() as cursor:
                        cursor.execute("SELECT * FROM t")
                        yield from cursor.fetch_record_batch()

                def of_kelpie_by_flight():
                    body = b"\x0a\x0fSELECT * FROM t"
                    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
                    packed = b"\x0a" + bytes([len(url)]) + url + b"\x12" + bytes([len(body)]) + body
                    info = direct.get_flight_info(flight.FlightDescriptor.for_command(packed))
                    for chunk in direct.do_get(info.endpoints[0].ticket):
                        yield chunk.data

                def of_peer():
                    for chunk in client.do_get(flight.Ticket(b"")):
                        yield chunk.data

                ways = {"kelpie, ADBC": of_kelpie, "kelpie, pyarrow.flight": of_kelpie_by_flight, "pyarrow.flight's server": of_peer}
                times = {name: [] for name in ways}
                for _ in range(arguments.rounds + 1):
                    for name, ask in ways.items():
                        rows, size, seconds = timed(ask)
                        assert rows == arguments.rows, (name, rows)
                        times[name].append((rows / seconds / 1e6, size / seconds / 1e6))
        finally:
            kelpie.kill()
            peer.kill()
    # The first round fills caches.
    medians = {name: statistics.median(rate for rate, _ in rates[1:]) for name, rates in times.items()}
    for name, rates in times.items():
        best, megabytes = max(rates[1:])
        ratio = medians[name] / medians["pyarrow.flight's server"]
        print(f"{name:26} best {best:6.2f} M rows/s ({megabytes:5.0f} MB/s), median {medians[name]:6.2f}, {ratio:.2f} of the peer")


main()
