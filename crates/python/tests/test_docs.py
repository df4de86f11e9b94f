"""The Python of the book, and of docstrings, runs."""

import doctest
import re

import kelpie
import kelpie.dbapi
import pytest
from conftest import REPOSITORY


BOOK = REPOSITORY / "docs/book/src"
# What is marked `py` needs a build with the feature datafusion-package.
LANGUAGES = "python|py" if hasattr(kelpie._kelpie, "DataFusionExtension") else "python"


def code(page):
    return "\n".join(re.findall(rf"```(?:{LANGUAGES})\n(.*?)```", page.read_text(), re.DOTALL))


# The page about the server has a client of its own, which that one's tests run.
PAGES = [page for page in sorted(BOOK.glob("*.md")) if page.name != "server.md" and code(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code(page), page.name, "exec"), {"__name__": "page"})


def test_pages_that_have_code_are_found():
    assert {"python.md", "quickstart.md"} <= {page.name for page in PAGES}
    assert code(BOOK / "python.md").count("assert") > 8


def test_docstrings():
    for module in [kelpie, kelpie.dbapi]:
        found = doctest.testmod(module)
        assert found.attempted > 0 and found.failed == 0
