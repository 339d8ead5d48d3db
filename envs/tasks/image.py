"""A Dockerfile as steps that the sandbox can carry out; a line that it cannot is refused by name."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from loomrl.envs.tasks.script import TaskRefused, keep_commands, lines_of
from loomrl.envs.tasks.workspace import PATH, SYSTEM, python_version

BASES = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?P<name>python|ubuntu|debian)(?::(?P<tag>[\w.-]+))?(?:@sha256:\w+)?"
    r"|ghcr\.io/laude-institute/t-bench/(?P<bench>ubuntu-24-04|python-3-13)(?::[\w.-]+)?(?:@sha256:\w+)?"
)
"""Images that are replaced by the programs of this machine."""
OTHER_LIBC = ("alpine", "windows", "nanoserver")
WITHOUT_EFFECT = {"CMD", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"}
"""Nothing of these is left once a command that only sleeps is started in the container, as both harnesses do."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A file, or the files of a folder, that lie in the image."""

    source: Path
    target: str
    mode: int | None


@dataclass(frozen=True, slots=True)
class ImageRun:
    """A command of the image's making, and the line it came from."""

    command: str
    folder: str
    environment: dict[str, str]
    line: str


@dataclass(slots=True)
class Image:
    """The steps of an image, in order, and what holds in its containers."""

    steps: list[Copy | ImageRun] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    """The WORKDIRs, in order."""

    @property
    def folder(self) -> str:
        """The one that commands begin in."""
        return self.folders[-1] if self.folders else "/"

    def enter(self, folder: str, where: str) -> None:
        """Make this the folder; Refused if it cannot be written to."""
        self.folders.append(_join(self.folder, folder))
        _check_writable(self.folder, where)


def read_image(file: Path) -> Image:
    """The image of a Dockerfile; Refused with the first line that the sandbox cannot honour."""
    image = Image()
    only_here = dict[str, str]()
    bases = 0
    for number, _, line in lines_of(file.read_text("utf-8")):
        where = f"{file.name} line {number}: {line}"
        word, _, rest = line.partition(" ")
        word = word.upper()
        rest = rest.strip()
        if not word:
            continue
        if "<<" in rest and word in {"RUN", "COPY", "ADD"}:
            raise TaskRefused(where, "here-documents are not carried out")
        known = {"PATH": PATH, **image.environment, **only_here}
        match word:
            case "FROM":
                bases += 1
                _check_base(rest, where, is_first=bases == 1)
            case "WORKDIR":
                image.enter(_fill_variables(rest, known, where), where)
            case "ENV":
                image.environment |= {name: _fill_variables(value, known, where) for name, value in _pairs(rest)}
            case "ARG":
                only_here |= {name: _fill_variables(value, known, where) for name, value in _pairs(rest) if value}
            case "COPY" | "ADD":
                image.steps += _copies(_fill_variables(rest, known, where), image.folder, file.parent, where)
            case "RUN" if not rest.startswith("--"):
                command = shlex.join(json.loads(rest)) if rest.startswith("[") else rest
                kept = keep_commands(command, where)
                if kept:
                    image.steps.append(ImageRun(kept, image.folder, image.environment | only_here, where))
            case "USER" if rest in {"root", "0"}:
                continue
            case "SHELL" if "bash" in rest or '"sh"' in rest or '"/bin/sh"' in rest:
                continue
            case _ if word not in WITHOUT_EFFECT:
                raise TaskRefused(where, "it has no meaning in the sandbox")
    if not bases:
        raise TaskRefused(file.name, "it has no FROM")
    return image


def _check_base(rest: str, where: str, *, is_first: bool) -> None:
    if not is_first:
        raise TaskRefused(where, "an image of several stages")
    words = [word for word in rest.split() if not word.startswith("--platform")]
    found = BASES.fullmatch(words[0]) if words else None
    if found is None or any(libc in (found["tag"] or "") for libc in OTHER_LIBC):
        raise TaskRefused(where, "only python, ubuntu and debian can be replaced by the programs of this machine")
    tag = "3.13" if found["bench"] == "python-3-13" else (found["tag"] or "") if found["name"] == "python" else ""
    wanted = tuple(map(int, re.findall(r"\d+", tag.partition("-")[0])[:2]))
    if wanted and python_version()[: len(wanted)] < wanted:
        here = ".".join(map(str, python_version()))
        raise TaskRefused(where, f"the sandbox's Python is {here}, which is older")


def _pairs(rest: str) -> Iterator[tuple[str, str]]:
    """`NAME=value …`, or the old `NAME value`."""
    if re.match(r"\w+\s", rest):
        name, _, value = rest.partition(" ")
        yield name, value.strip()
        return
    for word in shlex.split(rest):
        name, _, value = word.partition("=")
        yield name, value


def _fill_variables(text: str, known: dict[str, str], where: str) -> str:
    """The text with its variables replaced."""

    def value(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        default = found["default"]
        if name not in known and default is None:
            raise TaskRefused(where, f"nothing sets {name}")
        return known.get(name) or default or ""

    return re.sub(r"\$(?:\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|(?P<plain>\w+))", value, text)


def _join(folder: str, path: str) -> str:
    whole = PurePosixPath(folder, path)
    if ".." in whole.parts:
        return str(PurePosixPath("/", *Path(str(whole)).resolve().parts[1:]))
    return str(whole)


def _check_writable(path: str, where: str) -> None:
    top = PurePosixPath(path).parts[1:2]
    if not top or top[0] in SYSTEM:
        raise TaskRefused(where, f"{path} cannot be written to in the sandbox")


def _copies(rest: str, folder: str, context: Path, where: str) -> Iterator[Copy]:
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    mode = None
    while words and words[0].startswith("--"):
        option, _, value = words.pop(0).partition("=")
        if option == "--chmod" and re.fullmatch(r"[0-7]{3,4}", value):
            mode = int(value, 8)
        elif option != "--chown" or value.partition(":")[0] not in {"root", "0"}:
            raise TaskRefused(where, f"{option}={value} is not carried out")
    if len(words) < 2:
        raise TaskRefused(where, "a source and a target are needed")
    *sources, last = words
    target = _join(folder, last)
    found = [each for source in sources for each in _sources(source, context, where)]
    _check_writable(target, where)
    into = last.endswith("/") or last in {".", ".."} or len(found) > 1 or target == folder
    for source in found:
        is_archive = re.search(r"\.(tar|tgz|tbz2|txz)(\.\w+)?$", source.name)
        if where.split(": ", 1)[1].upper().startswith("ADD") and is_archive:
            raise TaskRefused(where, "archives are not unpacked")
        yield Copy(source, f"{target}/{source.name}" if into and source.is_file() else target, mode)


def _sources(source: str, context: Path, where: str) -> list[Path]:
    if "://" in source or source.startswith("git@"):
        raise TaskRefused(where, "the sandbox has no network")
    whole = source.lstrip("/") or "."
    found = [context / whole] if (context / whole).exists() else sorted(context.glob(whole))
    if not found:
        raise TaskRefused(where, f"{source} is not in the task's folder")
    if any(not each.resolve().is_relative_to(context.resolve()) for each in found):
        raise TaskRefused(where, f"{source} leaves the task's folder")
    return found
