import contextlib
import os
import pathlib
import re
import signal
import subprocess
import threading

import pytest

REPOSITORY = pathlib.Path(__file__).parents[3]


def pytest_addoption(parser):
    parser.addoption("--kelpie", help="the program kelpie, built with the feature `server`")


class Server:
    """A running `kelpie serve`, its log, and its address."""

    def __init__(self, program, *arguments):
        # A job in the background of a shell inherits that interrupts are ignored.
        self.process = subprocess.Popen(
            [program, "serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--device", "cpu", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.log, self.address, self.metrics = [], None, None
        while self.metrics is None:
            line = self.process.stderr.readline()
            assert line, "".join(self.log)
            self.log.append(line)
            if found := re.match(r"listening on grpc(?:\+tls)?://(\S+)", line):
                self.address = found[1]
            if found := re.match(r"metrics on (\S+)", line):
                self.metrics = found[1]
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    @property
    def uri(self):
        return f"grpc://{self.address}"

    def memory_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def stop(self):
        """Ends it as a service manager does; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.reader.join(10)
        return code


@pytest.fixture(scope="session")
def program(request):
    program = request.config.getoption("--kelpie")
    if program is None:
        pytest.skip("--kelpie names no program with a server")
    return os.path.abspath(program)


@pytest.fixture(scope="session")
def serve(program):
    """Starts servers that end with the test's `with`."""

    @contextlib.contextmanager
    def started(*arguments):
        server = Server(program, *arguments)
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()

    return started


@pytest.fixture(scope="session")
def tpch(program, tmp_path_factory):
    """A folder of the tables of TPC-H, of about 100 MB of text."""
    folder = tmp_path_factory.mktemp("tpch")
    subprocess.run([program, "generate", "tpch", "--scale", "0.1", "--output", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def server(serve, tpch):
    with serve("--data", tpch) as server:
        yield server


def query(name):
    """The text of a query of TPC-H."""
    return (REPOSITORY / "crates/workloads/queries/tpch" / f"{name}.sql").read_text()
