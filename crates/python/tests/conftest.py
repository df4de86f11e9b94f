import pathlib
import subprocess

import kelpie
import pytest

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
