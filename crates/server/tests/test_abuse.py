"""Clients that behave badly: nothing breaks, and memory stays."""

import re
import socket
import threading
import time
import urllib.request

import pyarrow.flight as flight
import pytest

LONG = "SELECT a.value AS a, b.value AS b FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def command(name, body=b""):
    """A command of Flight SQL, encoded."""
    return field(1, f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()) + field(2, body)


def statement(sql):
    return flight.FlightDescriptor.for_command(command("CommandStatementQuery", field(1, sql.encode())))


def ask(client, sql):
    info = client.get_flight_info(statement(sql))
    return client.do_get(info.endpoints[0].ticket)


def is_well(server):
    client = flight.connect(server.uri)
    assert ask(client, "SELECT count(*) AS n FROM region").read_all().to_pylist() == [{"n": 5}]
    client.close()
    assert server.process.poll() is None


def metric(server, name):
    text = urllib.request.urlopen(server.metrics, timeout=10).read().decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def wait_for(server, name, value):
    """Waits until a metric is a value, or one of which a function says so."""
    end = time.monotonic() + 60
    is_there = value if callable(value) else lambda found: found == value
    while not is_there(metric(server, name)):
        assert time.monotonic() < end, (name, metric(server, name))
        time.sleep(0.05)


def test_clients_that_stop_reading_take_no_memory(serve, tpch):
    with serve("--data", tpch, "--max-stall", "4s") as server:
        is_well(server)
        before = server.memory_mb()
        clients = [flight.connect(server.uri) for _ in range(16)]
        readers = [ask(client, LONG) for client in clients]
        for reader in readers:
            reader.read_chunk()
        wait_for(server, "kelpie_statements_running", 16)
        time.sleep(1)
        held = server.memory_mb()
        time.sleep(1)
        assert server.memory_mb() < held + 20
        assert held < before + 400
        is_well(server)
        # They lose their queries, and are told that the rows are not whole.
        wait_for(server, "kelpie_statements_running", 0)
        for reader in readers:
            with pytest.raises(flight.FlightError):
                while True:
                    reader.read_chunk()
        for client in clients:
            client.close()
        is_well(server)


def test_clients_that_come_and_go_leave_nothing(serve, tpch):
    with serve("--data", tpch, "--max-sessions", "20") as server:
        for number in range(200):
            if number == 50:
                before = server.memory_mb()
            client = flight.connect(server.uri)
            reader = ask(client, LONG if number % 4 == 0 else "SELECT * FROM nation")
            reader.read_chunk()
            if number % 2 == 0:
                reader.cancel()
            client.close()
        # A connection is there as long as a reader of it is.
        del reader, client
        wait_for(server, "kelpie_statements_running", 0)
        wait_for(server, "kelpie_connections", 0)
        assert server.memory_mb() < before + 150
        is_well(server)


def test_bytes_that_are_no_request_break_nothing(server):
    host, port = server.address.rsplit(":", 1)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for bytes_sent in [b"", b"\0" * 100, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", preface, preface + b"\xff" * 1000, b"\x16\x03\x01\x02\x00"]:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(bytes_sent)
            connection.settimeout(0.2)
            try:
                connection.recv(100)
            except OSError:
                pass
    is_well(server)


def test_connections_that_say_nothing_are_no_burden(server):
    host, port = server.address.rsplit(":", 1)
    idle = [socket.create_connection((host, int(port)), timeout=10) for _ in range(200)]
    wait_for(server, "kelpie_connections", lambda count: count >= 200)
    is_well(server)
    for connection in idle:
        connection.close()
    wait_for(server, "kelpie_connections", lambda count: count < 20)


def test_malformed_messages_are_refused(server):
    client = flight.connect(server.uri)
    for bad in [b"", b"x", b"\xff" * 50, command("CommandStatementQuery", b"\xff"), command("Nothing"), command("TicketStatementQuery", field(1, b"guess"))]:
        with pytest.raises((flight.FlightError, Exception)) as caught:
            client.do_get(flight.Ticket(bad)).read_all()
        assert "broke down" not in str(caught.value)
        with pytest.raises(Exception):
            client.get_flight_info(flight.FlightDescriptor.for_command(bad))
        with pytest.raises(Exception):
            list(client.do_action(flight.Action("CreatePreparedStatement", bad)))
    client.close()
    is_well(server)


def test_oversized_statements_are_refused(server):
    client = flight.connect(server.uri)
    for size in [(1 << 20) + 1, 17 << 20]:
        with pytest.raises(Exception) as caught:
            client.get_flight_info(statement("SELECT '" + "x" * size + "'"))
        assert re.search("the most|too large|larger", str(caught.value)), caught.value
    # As long as they may be they run.
    text = "x" * ((1 << 20) - 100)
    [row] = ask(client, f"SELECT '{text}' AS x").read_all().to_pylist()
    assert row["x"] == text
    client.close()
    is_well(server)


def test_a_signal_lets_statements_end(serve, tpch):
    with serve("--data", tpch) as server:
        client = flight.connect(server.uri)
        reader = ask(client, "SELECT l_orderkey FROM lineitem")
        rows = reader.read_chunk().data.num_rows
        codes = []
        stopping = threading.Thread(target=lambda: codes.append(server.stop()))
        stopping.start()
        time.sleep(0.5)
        with pytest.raises(flight.FlightUnavailableError):
            ask(client, "SELECT 1").read_all()
        rows += reader.read_all().num_rows
        assert rows == 600572
        client.close()
        stopping.join(60)
        assert codes == [0]
        lines = [line for line in server.log if "sql=" in line]
        assert any("SELECT l_orderkey FROM lineitem" in line and " done rows=600572 " in line for line in lines), server.log
