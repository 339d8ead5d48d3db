"""The pages that are generated from the code: every setting, every command, the public names of Python."""

import ast
import enum
import importlib
import inspect
import json
import re
from functools import cache
from typing import Any, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click

from loomrl.config import KINDS
from loomrl.config.suite import SUITES
from loomrl.config.sweep import Sweep
from loomrl.experiments import cli
from loomrl.experiments.commands.face import Noun
from loomrl.observability.family import families
from loomrl.schema import models_in
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import training_family

Model = type[BaseModel]
ROOTS: dict[str, tuple[Model, str]] = {
    "language": (KINDS["language"], "Settings of language policies"),
    "control": (KINDS["control"], "Settings of control policies"),
    "serving": (KINDS["serving"], "Settings of a service"),
    "loop": (KINDS["loop"], "Settings of a loop"),
    "sweep": (Sweep, "Settings of a sweep"),
    "suite-language": (SUITES["language"], "Settings of a gate for language policies"),
    "suite-control": (SUITES["control"], "Settings of a gate for control policies"),
}
"""Page → the root of its tree, and its title."""
DOORS = ("loomrl", "loomrl.envs", "loomrl.evaluation", "loomrl.rewards", "loomrl.curriculum")
"""The packages whose public names are documented."""


def pages() -> dict[str, str]:
    """Path of each generated page → its Markdown."""
    settings = {f"reference/settings/{name}.md": settings_page(name) for name in ROOTS}
    return {
        **settings,
        "reference/commands.md": commands_page(),
        "reference/metrics.md": metrics_page(),
        "reference/api.md": api_page(),
    }


# Metrics


def metrics_page() -> str:
    """Every metric that is exposed to Prometheus."""
    lines = [
        "# Metrics",
        "",
        "## Services and the record",
        "",
        "| metric | kind | labels | of | meaning |",
        "|---|---|---|---|---|",
    ]
    for each in families():
        labels = " ".join(f"`{label}`" for label in each.labels)
        buckets = f" Buckets: {' '.join(f'{bound:g}' for bound in each.buckets)}." if each.buckets else ""
        lines.append(f"| `{each.name}` | {each.kind} | {labels} | {each.origin} | {each.meaning}{buckets} |")
    lines += ["", "## Trainings", "", "| metric | meaning |", "|---|---|"]
    lines += [f"| `{training_family(metric).name}` | {metric.meaning} |" for metric in Metric]
    return "\n".join(lines) + "\n"


# Settings


def settings_page(page: str) -> str:
    """Every setting of one tree: a table for each class of it, under the first path that leads there."""
    root, title = ROOTS[page]
    links = {model: f"{name}.md" for name, (model, _) in ROOTS.items() if model is not root}
    sections = dict(_sections(root, "", links))
    text = [
        f"# {title}",
        _doc(root),
        "Any of them is set by its path: `PATH=VALUE` on the command line, a key in YAML.",
    ]
    for model, path in sections.items():
        if path:
            text += [f"## {path} {{ {links[model]} }}", _doc(model)]
        if model.model_fields:
            text.append(_table(model, links))
    return "\n\n".join(text) + "\n"


def _sections(model: Model, path: str, links: dict[Model, str]) -> list[tuple[Model, str]]:
    """This class and those below it, each with its heading; their anchors are added to `links`."""
    found = [(model, path)]
    links[model] = "#" + re.sub(r"[^a-z0-9_]+", "-", path.lower()).strip("-")
    for name, spec in model.model_fields.items():
        for part in models_in(spec.annotation):
            if part not in links:
                kind = f", kind {_kind(part)}" if "kind" in part.model_fields else ""
                base = path.split("`")[1] + "." if path else ""
                found += _sections(part, f"`{base}{name}`{kind}", links)
    return found


def _table(model: Model, links: dict[Model, str]) -> str:
    rows = [_row(model, name, links) for name in model.model_fields]
    return "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows])


def _row(model: Model, name: str, links: dict[Model, str]) -> str:
    spec = model.model_fields[name]
    names = {part.__name__: f"[{_kind(part)}]({links.get(part, '')})" for part in models_in(spec.annotation)}
    schema = _schema(model)["properties"][name]
    cells = (
        f"`{name}`",
        _typed(schema, names),
        _default(spec),
        re.sub(r"\bNone\b", "`null`", meaning(model, name) or ""),
    )
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


@cache
def _schema(model: Model) -> dict[str, Any]:
    return model.model_json_schema()


def _kind(model: Model) -> str:
    """The `kind` that chooses this class, or "section"."""
    spec = model.model_fields.get("kind")
    return "section" if spec is None else ", ".join(get_args(spec.annotation))


def _typed(schema: dict[str, Any], names: dict[str, str]) -> str:
    """A JSON schema in words."""
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true`, `false`"}
    match schema:
        case {"$ref": ref}:
            return names[ref.rpartition("/")[2]]
        case {"const": value}:
            return f"`{value}`"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"oneOf": parts} | {"anyOf": parts}:
            return " or ".join(_typed(part, names) for part in parts)
        case {"type": "array", "prefixItems": parts}:
            return f"[{', '.join(_typed(part, names) for part in parts)}]"
        case {"type": "array", "items": part}:
            return f"list of {_typed(part, names)}"
        case {"type": "object", "additionalProperties": dict(part)}:
            return f"map to {_typed(part, names)}"
        case {"type": "object"}:
            return "map"
        case {"type": "null"}:
            return "`null`"
        case {"type": kind}:
            signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
            bounds = [f"{sign} {json.dumps(schema[key])}" for key, sign in signs.items() if key in schema]
            return ", ".join([words[kind], *bounds])
    return "anything"


def _default(spec: FieldInfo) -> str:
    if spec.is_required():
        return "**required**"
    value = _plain(spec.get_default(call_default_factory=True))
    return "" if value == {} else f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _plain(value: Any) -> Any:
    """A default as data: of a section, its kind and what differs from its class."""
    if isinstance(value, BaseModel):
        kind = {"kind": value.kind} if "kind" in type(value).model_fields else {}  # type: ignore[attr-defined]
        return kind | value.model_dump(mode="json", exclude_defaults=True)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def meaning(model: Model, name: str) -> str | None:
    """The text under an attribute, also in a base class; of a section without one, what its class says first."""
    for base in model.__mro__[: model.__mro__.index(BaseModel)]:
        if found := _attribute_docs(base.__module__).get((base.__name__, name)):
            return found
    if name == "kind":
        return "What this is."
    inner = list(models_in(model.model_fields[name].annotation))
    return _doc(inner[0]).split("\n\n")[0] if len(inner) == 1 else None


def undescribed() -> list[str]:
    """Settings that say nothing about themselves."""
    models = {model for root, _ in ROOTS.values() for model, _ in _sections(root, "", {})}
    return sorted(f"{m.__module__}.{m.__name__}.{f}" for m in models for f in m.model_fields if not meaning(m, f))


@cache
def _attribute_docs(module: str) -> dict[tuple[str, str], str]:
    """(class, attribute) → the text under it."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.ClassDef):
            for one, after in zip(node.body, node.body[1:], strict=False):
                match one, after:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[node.name, name] = inspect.cleandoc(text)
    return found


def _doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


# Commands


def commands_page() -> str:
    """The help of every command."""
    app: Any = typer.main.get_command(cli.app)
    _shorten(app)
    text: str = get_docs_for_click(obj=app, ctx=typer.Context(app, info_name="loomrl"), name="loomrl", title="Commands")
    for name, command in app.commands.items():
        if isinstance(command, Noun) and command.default in command.commands:
            text = text.replace(f"loomrl {name} {command.default}", f"loomrl {name} [{command.default}]")
    return text


def _shorten(command: Any) -> None:
    """The first sentence is the short help: typer cuts it otherwise."""
    for each in getattr(command, "commands", {}).values():
        each.short_help = " ".join((each.help or "").split("\n\n")[0].split())
        _shorten(each)


# Python


def api_page() -> str:
    """The names that the public packages export, each once."""
    text = ["# Python", "Names are loaded when they are first used: `import loomrl` loads neither torch nor Ray."]
    seen: set[str] = set()
    for door in DOORS:
        package = importlib.import_module(door)
        names = sorted(getattr(package, "__all__", ()) or (n for n in vars(package) if n[0].isupper()))
        text.append(f"## {door}")
        text.append(_doc(package))
        if again := [name for name in names if name in seen]:
            text.append(f"Also here: {', '.join(f'[`{name}`](#{name.lower()})' for name in again)}.")
        for name in names:
            if name not in seen and not name.startswith("_"):
                seen.add(name)
                text += _described(name, getattr(package, name))
    return "\n\n".join(text) + "\n"


def _described(name: str, thing: Any) -> list[str]:
    text = [f"### {name} {{ #{name.lower()} }}"]
    page = next((page for page, (model, _) in ROOTS.items() if model is thing), None)
    if page is not None:
        return [*text, f"{_doc(thing)} [All settings](settings/{page}.md)"]
    if isinstance(thing, enum.EnumType):
        return [*text, _doc(thing), ", ".join(f"`{name}.{member}`" for member in thing.__members__)]
    text += [_signature(name, thing), _doc(thing)]
    if not inspect.isclass(thing):
        return text
    if issubclass(thing, BaseModel):
        rows = [_row(thing, field, {}) for field in thing.model_fields]
        return [
            *text[:1],
            _doc(thing),
            "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows]),
        ]
    for method in _methods(thing):
        function = inspect.unwrap(getattr(thing, method))
        text += [f"#### {name}.{method}", _signature(method, function), _doc(function)]
    return text


def _methods(thing: type) -> list[str]:
    """Public methods that are ours, in the order in which they are written."""
    ours = [vars(base) for base in reversed(thing.__mro__) if base.__module__.startswith("loomrl")]
    names = dict.fromkeys(name for each in ours for name, value in each.items() if inspect.isroutine(value))
    return [name for name in names if not name.startswith("_") and callable(getattr(thing, name))]


def _signature(name: str, thing: Any) -> str:
    found = inspect.signature(thing)
    given = list(found.parameters.values())
    if not inspect.isclass(thing) and given and given[0].name in ("self", "cls"):
        given = given[1:]
    named = next((i for i, one in enumerate(given) if one.kind is one.KEYWORD_ONLY), None)
    words = [str(one) for one in given]
    if named is not None and not any(one.kind is one.VAR_POSITIONAL for one in given):
        words.insert(named, "*")
    result = found.return_annotation
    arrow = "" if inspect.isclass(thing) or result is found.empty else f" -> {inspect.formatannotation(result)}"
    inside = ", ".join(words)
    if len(name) + len(inside) + len(arrow) > 100:
        inside = "\n    " + ",\n    ".join(words) + ",\n"
    word = "async def " if inspect.iscoroutinefunction(thing) else "" if inspect.isclass(thing) else "def "
    plain = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z])", "", f"{name}({inside}){arrow}")
    return f"```python\n{word}{plain}\n```"
