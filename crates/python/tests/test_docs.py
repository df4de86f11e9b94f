"""The code of docs/python.md, and of docstrings, runs."""

import doctest
import os
import re

import kelpie
import kelpie.dbapi
from conftest import REPOSITORY


def test_the_page(tmp_path):
    text = (REPOSITORY / "docs/python.md").read_text()
    # What is marked `py` needs a build with the feature datafusion-package.
    languages = "python|py" if hasattr(kelpie._kelpie, "DataFusionExtension") else "python"
    code = "\n".join(re.findall(rf"```(?:{languages})\n(.*?)```", text, re.DOTALL))
    assert code.count("assert") > 8
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        exec(compile(code, "docs/python.md", "exec"), {"__name__": "page"})
    finally:
        os.chdir(before)


def test_docstrings():
    for module in [kelpie, kelpie.dbapi]:
        found = doctest.testmod(module)
        assert found.attempted > 0 and found.failed == 0
