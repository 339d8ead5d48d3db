"""The documentation as a site: generated pages, quick starts, and that nothing is asked of other servers."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer
from mkdocs.exceptions import PluginError

from loomrl.config import parse_experiment
from loomrl.experiments import cli
from loomrl.experiments.commands.face import Noun
from loomrl.experiments.gate.suite import parse_suite
from loomrl.load import parse_yaml
from tests.test_docs import DOCS, blocks
from tests.test_notebook import run_cells

NOTEBOOKS = sorted(DOCS.glob("quickstart/*.ipynb"))


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    yield from imported("reference")


@pytest.fixture(scope="module")
def hooks() -> Iterator[ModuleType]:
    yield from imported("hooks")


def imported(name: str) -> Iterator[ModuleType]:
    """A module beside mkdocs.yml."""
    sys.path.insert(0, str(DOCS / "mkdocs"))
    yield importlib.import_module(name)
    sys.path.remove(str(DOCS / "mkdocs"))


def test_every_setting_says_what_it_means(reference: ModuleType) -> None:
    assert reference.undescribed() == []


def test_page_of_settings_has_type_default_and_meaning(reference: ModuleType) -> None:
    page = reference.settings_page("language")
    assert "| `max_staleness` | whole number, ≥ 0 | `0` | Maximum age, in policy versions," in page
    assert "| `place` | `loss`, `reward` | `loss` |" in page
    assert "| `name` | text | **required** |" in page
    assert "[grpo](#algorithm-kind-grpo)" in page
    assert "## `algorithm`, kind grpo { #algorithm-kind-grpo }" in page


def test_links_within_pages_of_settings_lead_to_a_section(reference: ModuleType) -> None:
    for name in reference.ROOTS:
        page = reference.settings_page(name)
        assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= set(re.findall(r"{ #(\S+) }", page))


def test_every_command_is_on_its_page(reference: ModuleType) -> None:
    page = reference.commands_page()
    app: Any = typer.main.get_command(cli.app)
    inner = {name: command for name, command in app.commands.items() if isinstance(command, Noun)}
    names = [f"{group} {name}" for group, noun in inner.items() for name in noun.commands if name != noun.default]
    assert {name for name in [*app.commands, *names] if f"# `loomrl {name}`" not in page} == set()
    assert "..." not in page.split("**Commands**")[1].split("##")[0]


def test_tutorials_experiments_and_suites_are_sound() -> None:
    names = set()
    for page in DOCS.glob("tutorials/*.md"):
        for text in blocks(f"tutorials/{page.name}", "yaml"):
            given = parse_yaml(text, origin=page.name)
            parse = parse_suite if "benchmarks" in given else parse_experiment
            names.add(parse(given, origin=page.name).name)
    assert names == {"arm", "numbers"}


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_names_that_a_quick_start_imports_exist(file: Path) -> None:
    notebook = json.loads(file.read_text())
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])
    imported = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            compile(code, file.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom):
                    module = importlib.import_module(str(node.module))
                    assert all(hasattr(module, alias.name) for alias in node.names), node.module
                    imported += 1
    assert imported


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_cells_of_a_quick_start_run_in_their_order(file: Path, tmp_path: Path) -> None:
    cells = ["".join(cell["source"]) for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]
    ran = run_cells(cells, tmp_path)
    assert not ran.returncode, ran.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.system
def test_site_is_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(DOCS / "mkdocs/mkdocs.yml"), "-d", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "reference/settings/language.html").is_file()
    assert (tmp_path / "quickstart/control.html").is_file()


def test_page_that_asks_another_server_is_refused(hooks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "own.html").write_text('<a href="https://example.org">x</a><img src="a.png"><link href="b.css">')
    hooks.on_post_build(SimpleNamespace(site_dir=tmp_path))
    (tmp_path / "fonts.html").write_text('<link rel="stylesheet" href="https://fonts.example.org/a.css">')
    with pytest.raises(PluginError, match=r"fonts\.html asks another server"):
        hooks.on_post_build(SimpleNamespace(site_dir=tmp_path))


def test_links_lead_to_the_pages_of_the_site(hooks: ModuleType) -> None:
    def linked(text: str, page: str) -> str:
        return hooks.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=page, generated_by=None)))

    assert linked("[a](../loomrl/config/control.py)", "control.md") == "[a](source/loomrl/config/control.py.md)"
    assert linked("[a](../language.md#the-engine)", "tutorials/chat.md") == "[a](../language.md#the-engine)"
    assert linked("[a](quickstart/control.ipynb)", "index.md") == "[a](quickstart/control.md)"
    assert linked("[a](../CONTRIBUTING.md)", "control.md") == "[a](contributing.md)"
    assert linked("[a](https://example.org/b.md) [c](#d)", "control.md") == "[a](https://example.org/b.md) [c](#d)"
