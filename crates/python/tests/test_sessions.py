"""Sessions: settings, errors, interrupts, functions."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import kelpie
import pyarrow
import pyarrow.compute
import pytest

SLOW = "SELECT count(*) FROM range(100000) a, range(100000) b, range(1000) c WHERE (a.value * b.value + c.value) % 7 = 3"


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELEC 1", kelpie.ProgrammingError, "(?i)sql parser error|expected"),
        ("SELECT 1; SELECT 2", kelpie.Error, "."),
        ("", kelpie.Error, "."),
        ("SELECT * FROM nowhere", kelpie.ProgrammingError, "nowhere"),
        ("SELECT nothing FROM range(3)", kelpie.ProgrammingError, "nothing"),
        ("SET kelpie.device = 'tpu'", kelpie.ProgrammingError, "tpu"),
    ],
)
def test_wrong_statements(session, sql, error, message):
    with pytest.raises(error, match=message):
        session.sql(sql)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT 1 / (value - 1) FROM range(3)", kelpie.DataError),
        ("SELECT CAST(substr('abc', value) AS BIGINT) FROM range(3)", kelpie.DatabaseError),
    ],
)
def test_wrong_values(session, sql, error):
    result = session.sql(sql)
    for take in [result.fetchall, result.arrow, result.df, result.pl, lambda: list(result.fetchall())]:
        with pytest.raises(error):
            take()
    # Another package words it in its own way.
    with pytest.raises(Exception, match="."):
        pyarrow.table(result)


def test_errors_are_those_of_db_api():
    assert issubclass(kelpie.DataError, kelpie.DatabaseError) and issubclass(kelpie.DatabaseError, kelpie.Error)
    assert issubclass(kelpie.InterfaceError, kelpie.Error) and not issubclass(kelpie.InterfaceError, kelpie.DatabaseError)
    error = pickle.loads(pickle.dumps(kelpie.DataError("x")))
    assert isinstance(error, kelpie.DataError) and str(error) == "x"


def test_options():
    with kelpie.connect(device="cpu", threads=1, kept_plans=5, settings={"datafusion.execution.batch_size": 100}) as session:
        assert session.sql("SHOW kelpie.device").fetchall() == [("kelpie.device", "cpu")]
        session.set("kelpie.device", "simt")
        assert session.sql("SHOW kelpie.device").fetchall() == [("kelpie.device", "simt")]
        session.set("kelpie.corrections", False)
        with pytest.raises(kelpie.ProgrammingError, match="tpu"):
            session.set("kelpie.device", "tpu")
    with pytest.raises(kelpie.ProgrammingError, match="nonsense"):
        kelpie.connect(nonsense=1)


def test_timing(session):
    assert session.last_timing() is None
    session.sql("CREATE TABLE t AS SELECT value AS n FROM range(1000)")
    session.sql("SELECT n % 3, count(*) FROM t GROUP BY 1").fetchall()
    timing = session.last_timing()
    assert timing["device"].startswith("cpu") and timing["not_compiled"] == []
    assert timing["total"] >= timing["planning"] > 0


def test_a_closed_session():
    session = kelpie.connect()
    rows = iter(session.sql("SELECT * FROM range(10)"))
    assert not session.closed
    with session:
        pass
    assert session.closed and "closed" in repr(session)
    assert sum(map(len, rows)) == 10
    for use in [lambda: session.sql("SELECT 1"), session.tables, lambda: session.set("kelpie.device", "cpu")]:
        with pytest.raises(kelpie.InterfaceError, match="the session is closed"):
            use()
    session.close()


def test_the_default_session():
    assert kelpie.sql("SELECT 1").fetchall() == [(1,)]
    assert kelpie.default_session() is kelpie.default_session()


@pytest.mark.parametrize("take", ["fetchall", "arrow", "pl", "show"])
def test_ctrl_c(take):
    with kelpie.connect(device="cpu", progress=False) as session:
        result = session.sql(SLOW)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            getattr(result, take)()
        assert time.monotonic() - start < 5
        # The session goes on.
        assert session.sql("SELECT 1").fetchall() == [(1,)]


def test_ctrl_c_while_another_package_reads():
    with kelpie.connect(device="cpu", progress=False) as session:
        result = session.sql(SLOW)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        # The C stream interface carries a text, and the interrupt comes right after it.
        with pytest.raises(KeyboardInterrupt):
            try:
                pyarrow.table(result)
            except (pyarrow.ArrowException, OSError):
                for _ in range(100):
                    time.sleep(0.05)
        assert time.monotonic() - start < 5


def test_other_threads_run_while_a_query_does():
    with kelpie.connect(device="cpu", progress=False) as session:
        counted, over = [0], threading.Event()

        def count():
            while not over.is_set():
                counted[0] += 1
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            session.sql(SLOW).fetchall()
        over.set()
        thread.join()
        assert counted[0] > 100


def test_progress():
    seen = []
    with kelpie.connect(device="cpu", progress=seen.append) as session:
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            session.sql(SLOW).fetchall()
        assert seen[0] >= 1 and seen[-1] is None and seen[-2] > seen[0]
        seen.clear()
        session.sql("SELECT 1").fetchall()
        assert seen == []


def test_the_line_of_progress(capsys):
    line = kelpie._progress.of(True)
    line(2.0)
    line(None)
    assert "running 2 s" in capsys.readouterr().err
    assert kelpie._progress.of(False) is None and kelpie._progress.of(line) is line


def test_functions(session):
    calls = []

    def add(a, b):
        calls.append(len(a))
        return pyarrow.compute.add(a, b)

    session.create_function("PyAdd", add, [int, pyarrow.int64()], "bigint")
    assert session.sql("SELECT sum(pyadd(value, 1)), max(PyAdd(value, 2)) FROM range(1000)").fetchall() == [(500500, 1001)]
    assert sum(calls) >= 1000
    session.create_function("shout", lambda s: pyarrow.compute.utf8_upper(s), [str], str)
    assert session.sql("SELECT shout(s) FROM (VALUES ('é'), (NULL)) AS v(s)").fetchall() == [("É",), (None,)]
    session.create_function("as_list", lambda n: [str(v) if v.as_py() else None for v in n], [int], str)
    assert session.sql("SELECT as_list(value) FROM range(3)").fetchall() == [(None,), ("1",), ("2",)]
    session.create_function("as_numpy", lambda n: n.to_numpy() * 0.5, [int], float)
    assert session.sql("SELECT as_numpy(value) FROM range(3)").fetchall() == [(0.0,), (0.5,), (1.0,)]
    session.create_function("answer", lambda: 42, [], int, volatile=True)
    assert session.sql("SELECT answer() FROM range(2)").fetchall() == [(42,), (42,)]


def test_a_function_that_was_replaced(session):
    rows = pyarrow.table({"n": list(range(1000))})  # noqa: F841
    for factor in [2, 3]:
        session.create_function("times", lambda n, f=factor: pyarrow.compute.multiply(n, f), [int], int)
        assert session.sql("SELECT sum(times(n)) FROM rows").fetchall() == [(499500 * factor,)]
        assert session.sql("SELECT times(n) % 2, count(*) FROM rows GROUP BY 1 ORDER BY 1").fetchone() is not None


class Mishap(Exception):
    pass


def test_functions_that_fail(session):
    def fail(_):
        raise Mishap("no luck")

    session.create_function("fail", fail, [int], int)
    with pytest.raises(Mishap, match="no luck"):
        session.sql("SELECT fail(value) FROM range(3)").fetchall()
    session.create_function("short", lambda n: n[:1], [int], int)
    with pytest.raises(kelpie.Error, match="gave 1 values for 3 rows"):
        session.sql("SELECT short(value) FROM range(3)").fetchall()
    session.create_function("asks", lambda n: session.sql("SELECT 1").fetchall(), [int], int)
    with pytest.raises(kelpie.Error):
        session.sql("SELECT asks(value) FROM range(3)").fetchall()
    session.create_function("other", lambda n: object(), [int], int)
    with pytest.raises(kelpie.InterfaceError, match="no array"):
        session.sql("SELECT other(value) FROM range(3)").fetchall()
    with pytest.raises(kelpie.ProgrammingError, match="there is no type strange"):
        session.create_function("f", fail, ["strange"], int)
    with pytest.raises(kelpie.InterfaceError, match="int is no function"):
        session.create_function("f", 5, [int], int)
    with pytest.raises(kelpie.InterfaceError, match="is no type"):
        session.create_function("f", fail, [5], int)


def run(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_fork_is_told():
    done = run(
        """
        import os, kelpie
        kelpie.sql("SELECT 1").fetchall()
        child = os.fork()
        if child == 0:
            try:
                kelpie.sql("SELECT 1").fetchall()
            except kelpie.InterfaceError as error:
                os._exit(7 if "forked" in str(error) else 1)
            os._exit(2)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.stdout.strip() == "7", done


def test_an_end_with_all_open():
    done = run(
        """
        import kelpie, pyarrow
        session = kelpie.connect(device="cpu")
        session.create_function("f", lambda n: n, [int], int)
        rows = pyarrow.table({"n": list(range(100000))})
        result = session.sql("SELECT f(n) FROM rows")
        result.fetchone()
        reader = result.reader()
        print("end")
        """
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("end", "", 0)


def test_types_are_known():
    package = pathlib.Path(kelpie.__file__).parent
    assert (package / "py.typed").exists() and (package / "_kelpie.pyi").exists()
    stub = (package / "_kelpie.pyi").read_text()
    for kind in [kelpie._kelpie.Session, kelpie._kelpie.Rows, kelpie._kelpie.Batches, kelpie._kelpie.Table]:
        for name in vars(kind):
            assert name.startswith("__") or f" {name}(" in stub, f"{kind.__name__}.{name}"
