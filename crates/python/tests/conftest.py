import pathlib
import signal
import subprocess

import kelpie
import pytest

# A job in the background of a shell inherits that interrupts are ignored; tests send some.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = pathlib.Path(__file__).parents[3]


def pytest_addoption(parser):
    parser.addoption("--kelpie", help="the program kelpie, which makes data")


@pytest.fixture
def session():
    with kelpie.connect(device="cpu") as session:
        yield session


@pytest.fixture(scope="session")
def tpch(request, tmp_path_factory):
    """A folder of the tables of TPC-H, of about 100 MB of text."""
    program = request.config.getoption("--kelpie")
    if program is None:
        pytest.skip("--kelpie names no program that makes data")
    folder = tmp_path_factory.mktemp("tpch")
    subprocess.run([program, "generate", "tpch", "--scale", "0.1", "--output", folder], check=True)
    return folder


def query(name):
    """The text of a query of TPC-H."""
    return (REPOSITORY / "crates/workloads/queries/tpch" / f"{name}.sql").read_text()
