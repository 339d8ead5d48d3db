"""Commands of Dockerfiles and shell scripts that would fetch something: done without, or refused by name."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from loomrl.errors import ConfigError
from loomrl.gym.generate import words

FETCHES = words(
    "apt-get apt aptitude dpkg apk yum dnf snap brew pip pip3 pipx uv uvx conda mamba poetry npm npx yarn pnpm cargo "
    "gem cpan go rustup curl wget add-apt-repository service systemctl useradd adduser groupadd chown chgrp su sudo"
)
"""Programs that need a network, a daemon or root, none of which is in the sandbox."""
FETCHING = {"git": {"clone", "fetch", "pull", "push"}, "python": {"-m pip"}, "python3": {"-m pip"}}
OF_THE_HARNESS = {"tmux", "asciinema"}
"""Packages by which Terminal-Bench types into a container; no task needs them."""
OF_THE_INSTALLER = {"curl", "ca-certificates"}
"""Packages by which test scripts fetch uv; a later command that fetches is refused itself."""
PYTEST = {"pytest", "pytest-json-ctrf"}
"""Python packages that a verifier finds here: our own pytest, which leaves `--ctrf` out."""
SEPARATOR = re.compile(r"&&|;|\|\||\||&")
HERE_DOCUMENT = re.compile(r"(?<!<)<<-?\s*(['\"]?)(\w+)\1")


class TaskRefused(ConfigError):
    """A task that the sandbox cannot play: where it says what cannot be honoured, and why not."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")


class ScriptLine(NamedTuple):
    """A command with the lines that continue it, as it is written (`raw`) and as one line without its margins."""

    number: int
    raw: str
    text: str


def lines_of(script: str) -> Iterator[ScriptLine]:
    """All lines of a script or Dockerfile; comments, empty lines and here-documents have no text."""
    raw = ""
    text = ""
    begun = 1
    closing = ""
    for number, line in enumerate(script.splitlines(keepends=True), 1):
        bare = line.strip()
        if closing:
            closing = "" if bare == closing else closing
            yield ScriptLine(number, line, "")
            continue
        begun = begun if raw else number
        raw += line
        text += "" if bare.startswith("#") else bare.removesuffix("\\")
        if bare.endswith("\\") or (bare.startswith("#") and text):
            continue
        opened = HERE_DOCUMENT.search(text)
        closing = opened[2] if opened else ""
        yield ScriptLine(begun, raw, text)
        raw = text = ""
    if raw:
        yield ScriptLine(begun, raw, text)


def keep_commands(command: str, where: str) -> str:
    """The rest of a RUN without packages that are installed here; TaskRefused if it fetches anything else."""
    parts = [part.strip() for part in re.split(r"&&|;", command) if part.strip()]
    kept = [part for part in parts if not _installs_what_is_here(part, OF_THE_HARNESS)]
    if len(kept) < len(parts):
        command = " && ".join(kept)
    refuse_fetching(command, where)
    return command


def offline_script(script: str, file: str) -> str:
    """A test script without the lines that install curl, uv and pytest; Refused if it fetches anything else."""
    kept = []
    for number, raw, text in lines_of(script):
        if _is_installer(text):
            kept.append(":\n")
            continue
        ours = _with_our_pytest(text)
        refuse_fetching(ours, f"{file} line {number}: {text}")
        kept.append(raw if ours == text else f"{ours}\n")
    return "".join(kept)


def refuse_fetching_script(script: str, file: str) -> None:
    """Refused with the first line of a script that fetches something."""
    for number, _, text in lines_of(script):
        refuse_fetching(text, f"{file} line {number}: {text}")


def refuse_fetching(command: str, where: str) -> None:
    """Refused if a command is one that needs a network, a daemon or root."""
    for part in SEPARATOR.split(command):
        words = re.findall(r"[^\s'\"()]+", part)
        while words and re.fullmatch(r"\w+=.*|if|then|do|else|!|\{|exec|time|nohup|env", words[0]):
            words.pop(0)
        if not words:
            continue
        name = words[0].rpartition("/")[2]
        rest = " ".join(words[1:3])
        if name in FETCHES or any(rest.startswith(each) for each in FETCHING.get(name, ())):
            raise TaskRefused(where, f"{name} needs a network, a daemon or root, and the sandbox has none")


def _is_installer(line: str) -> bool:
    """True of a line by which verifiers bring uv and pytest, and of one by which the shell finds them."""
    if not line:
        return False
    if re.search(r"astral\.sh/uv", line) and re.match(r"(curl|wget)\s", line):
        return True
    if re.fullmatch(r"(source|\.)\s+\S*(\.local/bin/env|/bin/activate)\"?", line):
        return True
    if re.fullmatch(r"export PATH=\S*\.(local|cargo)/bin\S*", line) or re.match(r"uv\s+(init|venv|sync)\b", line):
        return True
    install = re.fullmatch(r"(?:uv\s+add|(?:uv\s+|python3?\s+-m\s+)?pip3?\s+install)\s+([^&|;]+)", line)
    if install:
        return all(_distribution(word) in PYTEST for word in _operands(install[1]))
    return all(_installs_what_is_here(part.strip(), OF_THE_INSTALLER) for part in line.split("&&"))


def _with_our_pytest(line: str) -> str:
    """`uv run` and `uvx` run what is here, if what they would bring along is here, too."""
    found = re.search(r"\buvx\s+((?:(?:-p|--python|-w|--with)[\s=]\S+\s+)*)(?=pytest\b)", line)
    if found:
        brought = re.findall(r"(?:-w|--with)[\s=](\S+)", found[1])
        if all(_distribution(word) in PYTEST for word in brought):
            return line[: found.start()] + line[found.end() :]
    return re.sub(r"\buv\s+run\s+(?=(pytest|python3?|bash|sh)\b)", "", line)


def _installs_what_is_here(part: str, known: set[str]) -> bool:
    """True of `apt-get install` of packages that are installed on this machine, and of what stands around it."""
    words = part.removeprefix("DEBIAN_FRONTEND=noninteractive ").split()
    if words[:1] not in (["apt-get"], ["apt"]):
        return part.startswith("rm -rf /var/lib/apt/lists")
    match _operands(" ".join(words[1:])):
        case ["update" | "clean" | "autoremove"]:
            return True
        case ["install", *packages]:
            return all(name in known or _is_installed(name) for name in packages)
    return False


def _operands(rest: str) -> list[str]:
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    return [word for word in words if not word.startswith("-") and not re.match(r"\d?>|/dev/null", word)]


def _distribution(word: str) -> str:
    return re.split(r"[=<>!~\[]", word.strip("'\""))[0].lower()


@cache
def _is_installed(package: str) -> bool:
    """True if this machine has the Debian package, in this version if it names one."""
    name, _, version = package.partition("=")
    if shutil.which("dpkg-query") is None or not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name):
        return False
    asked = ["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev} ${Version}", name]
    words = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    return words[:1] == ["ii"] and version in ("", words[-1])
