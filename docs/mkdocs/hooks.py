"""Hooks of MkDocs beside copying docs/*.md: generated pages, and links that work on a code host and in the site."""

import json
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import reference
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository outside docs/ that are pages of the site."""
ASKS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import\b"""
)
"""Markup that makes a browser ask another server."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, the notebooks as pages, and files outside docs/ that the pages link to."""
    made = reference.pages()
    made |= {page: _nested((ROOT / name).read_text()) for name, page in PAGES.items() if page not in files.src_uris}
    texts = {_repository_path(file.src_uri): file.content_string for file in files.documentation_pages()}
    for path in sorted({target for page, text in texts.items() for target in _targets(page, text)}):
        if not path.startswith("docs/") and path not in PAGES:
            made[_page(path)] = _source(path)
    for file in files:
        if file.src_uri.endswith(".ipynb"):
            made[_page(f"docs/{file.src_uri}")] = _notebook(Path(file.src_uri).name, file.content_string)
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Have links lead to the pages of the site."""
    if page.file.generated_by and page.file.src_uri not in PAGES.values():
        return markdown
    path = _repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def relink(found: re.Match[str]) -> str:
        return posixpath.relpath(_page(_target(path, found[1])), here or ".")

    return LINK.sub(relink, markdown)


def on_post_build(config: Any) -> None:
    """Refuse a site whose pages or styles ask other servers for anything: it has to work offline."""
    for file in sorted(Path(config.site_dir).rglob("*")):
        if file.suffix in (".html", ".css") and (found := ASKS.search(file.read_text())):
            raise PluginError(f"{file.name} asks another server: {found[0]}")


def _repository_path(page: str) -> str:
    return next((name for name, other in PAGES.items() if other == page and page != "index.md"), f"docs/{page}")


def _targets(path: str, text: str) -> Iterable[str]:
    return (_target(path, found) for found in LINK.findall(text))


def _target(path: str, link: str) -> str:
    """The file of the repository that a link in this file leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _page(path: str) -> str:
    """The page of the site for a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
    return f"source/{path}.md"


def _nested(text: str) -> str:
    """Lists within lists by four spaces, which Markdown of Python wants."""
    return text.replace("\n  ", "\n    ")


def _source(path: str) -> str:
    language = {".py": "python", ".yaml": "yaml"}.get(Path(path).suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n````{language}\n{(ROOT / path).read_text()}````\n"


def _notebook(name: str, text: str) -> str:
    """The cells of a notebook, one after the other."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    shown = [f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells]
    return "\n\n".join([*shown, f"[This page as a notebook]({name})"]) + "\n"
