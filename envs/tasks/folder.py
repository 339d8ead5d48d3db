"""Task folders of Harbor (task.toml) and Terminal-Bench (task.yaml), read into one form, or refused by name."""

import base64
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from loomrl.envs.tasks.image import Copy, Image, read_image
from loomrl.envs.tasks.script import TaskRefused, offline_script, refuse_fetching_script
from loomrl.envs.tasks.workspace import ALWAYS_WRITABLE, SYSTEM, File, files_of
from loomrl.errors import ConfigError

HARBOR: Mapping[str, set[str]] = {
    "agent": {"timeout_sec", "user", "network_mode"},
    "verifier": {"timeout_sec", "user", "network_mode", "env"},
    "environment": {
        *("build_timeout_sec", "docker_image", "cpus", "memory", "memory_mb", "storage", "storage_mb", "gpus", "env"),
        *("gpu_types", "allow_internet", "network_mode", "mcp_servers", "skills_dir", "healthcheck", "os", "workdir"),
    },
    "solution": {"env"},
}
"""Sections of task.toml that say how a task is played, with the keys that are known."""
DESCRIBES = {"version", "schema_version", "task", "metadata", "source", "artifacts"}
UNMET = {"gpus", "gpu_types", "mcp_servers", "skills_dir", "healthcheck"}
"""Keys that mean nothing only where they are empty."""
SERVICE = {"build", "image", "container_name", "command", "environment", "volumes", "working_dir"}
"""Keys of the one service in a compose file that the sandbox stands for."""
HARNESS = re.compile(r"\$\{?(T_BENCH|CPUS|MEMORY|MAIN_IMAGE|HOST_|ENV_|TEST_DIR)\w*")
LOGS = "/logs/verifier"
PATHS = re.compile(r"(?<![\w./:~$}-])/([A-Za-z][\w-]*)(?=[/\s'\"`).,;:]|$)")
MOST_FOLDERS = 24
"""Folders that the texts of a task name."""


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """A task: what the policy is asked, the machine that it finds, and the files that it never sees."""

    name: str
    kind: Literal["harbor", "terminal-bench"]
    instruction: str
    image: Image
    agent_s: float
    verifier_s: float
    memory_mb: int
    script: str
    """Path of the test script in the box."""
    tests: tuple[File, ...]
    verifier_env: Mapping[str, str]
    solution: tuple[str, ...] = ()
    """Commands that solve it, or none."""
    writable: tuple[str, ...] = ()

    @property
    def runs_pytest(self) -> bool:
        """True if its test script names pytest."""
        return any(b"pytest" in (file.content or b"") for file in self.tests if file.path == self.script)


def read_folders(folder: Path, names: tuple[str, ...]) -> dict[str, TaskFolder]:
    """The tasks of a folder by name; a ConfigError lists every one that the sandbox cannot play, and why not."""
    if not folder.is_dir():
        raise ConfigError(f"TaskFolders: folder={str(folder)!r} is not there.")
    if folder.resolve().is_relative_to("/usr"):
        raise ConfigError(f"TaskFolders: folder={str(folder)!r} lies in /usr, which policies can read. Move it.")
    there = {path.name: path for path in sorted(folder.iterdir()) if _kind(path) is not None}
    missing = sorted({*names} - there.keys())
    if missing or not there:
        known = ", ".join(there) or "none, as no folder in it has a task.toml or task.yaml"
        raise ConfigError(f"TaskFolders: folder={str(folder)!r} has no tasks {missing}. It has {known}.")
    found = {}
    refusals = []
    for name in names or there:
        try:
            found[name] = read_folder(there[name])
        except TaskRefused as refusal:
            refusals.append(f"{name}: {refusal}")
    if refusals:
        playable = f"names=[{', '.join(found)}] can be played." if found else "None can be played."
        count = f"{len(refusals)} of {len(names or there)}"
        listed = "\n  ".join(refusals)
        raise ConfigError(f"TaskFolders: {count} tasks cannot be played in the sandbox. {playable}\n  {listed}")
    return found


def read_folder(path: Path) -> TaskFolder:
    """The task in a folder of its own; Refused if the sandbox cannot play it as it is meant."""
    for found in path.rglob("*"):
        if found.is_symlink():
            raise TaskRefused(str(found.relative_to(path)), "a link, which may lead to files of this machine")
    return _read_harbor(path) if _kind(path) == "harbor" else _read_terminal_bench(path)


def _kind(path: Path) -> str | None:
    if (path / "task.toml").is_file():
        return "harbor"
    return "terminal-bench" if (path / "task.yaml").is_file() else None


def _read_harbor(path: Path) -> TaskFolder:
    try:
        given = tomllib.loads(_text(path / "task.toml"))
    except tomllib.TOMLDecodeError as error:
        raise TaskRefused("task.toml", f"it cannot be read: {error}") from error
    _check_harbor(given)
    agent, verifier, machine, solution = (given.get(name, {}) for name in HARBOR)
    _check_compose(path / "environment/docker-compose.yaml", "main")
    image = read_image(_file(path / "environment/Dockerfile"))
    image.environment |= _plain(machine.get("env", {}), "[environment] env")
    if machine.get("workdir"):
        image.enter(machine["workdir"], f"task.toml [environment] workdir = {machine['workdir']!r}")
    tests = _tests(path / "tests", "test.sh")
    return TaskFolder(
        name=path.name,
        kind="harbor",
        instruction=_text(path / "instruction.md"),
        image=image,
        agent_s=float(agent.get("timeout_sec") or 0) or float("inf"),
        verifier_s=float(verifier.get("timeout_sec", 600)),
        memory_mb=_megabytes(machine.get("memory_mb", machine.get("memory", 2048))),
        script="/tests/test.sh",
        tests=tests,
        verifier_env=_plain(verifier.get("env", {}), "[verifier] env"),
        solution=_harbor_solution(path / "solution", _plain(solution.get("env", {}), "[solution] env")),
        writable=_writable(image, path),
    )


def _check_harbor(given: Mapping[str, Any]) -> None:
    unknown = sorted(given.keys() - HARBOR.keys() - DESCRIBES)
    if unknown:
        raise TaskRefused(f"task.toml [{unknown[0]}]", "it has no meaning in the sandbox")
    for section, known in HARBOR.items():
        for key, value in given.get(section, {}).items():
            where = f"task.toml [{section}] {key} = {value!r:.100}"
            if key not in known or (key in UNMET and value) or (key == "os" and value != "linux"):
                raise TaskRefused(where, "it has no meaning in the sandbox")
            if key == "user" and value not in (None, "root", 0, "0"):
                raise TaskRefused(where, "there is one user in the sandbox")
            if key == "network_mode" and value == "allowlist":
                raise TaskRefused(where, "the sandbox has no network")


def _harbor_solution(folder: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The script as one command; further files of the folder are written by commands before it."""
    if not (folder / "solve.sh").is_file():
        return ()
    script = _text(folder / "solve.sh")
    refuse_fetching_script(script, "solution/solve.sh")
    exports = "".join(f"export {name}={_quote(value)}\n" for name, value in environment.items())
    others = [file for file in files_of(folder, "/solution") if file.content is not None]
    if len(others) == 1:
        return (exports + script,)
    return (*map(_write_command, others), f"{exports}bash /solution/solve.sh")


def _write_command(file: File) -> str:
    text = base64.b64encode(file.content or b"").decode()
    folder = file.path.rpartition("/")[0]
    return f"mkdir -p {folder} && base64 -d > {file.path} <<'END'\n{text}\nEND\nchmod {file.mode:o} {file.path}"


def _read_terminal_bench(path: Path) -> TaskFolder:
    try:
        given = yaml.safe_load(_text(path / "task.yaml"))
    except yaml.YAMLError as error:
        raise TaskRefused("task.yaml", f"it cannot be read: {error}") from error
    if not isinstance(given, dict) or not isinstance(given.get("instruction"), str):
        raise TaskRefused("task.yaml", "it has no instruction")
    if (parser := given.get("parser_name", "pytest")) != "pytest":
        raise TaskRefused(f"task.yaml parser_name: {parser}", "results are read from pytest only")
    if given.get("run_tests_in_same_shell"):
        raise TaskRefused("task.yaml run_tests_in_same_shell: true", "every command has a shell of its own")
    compose = _check_compose(path / "docker-compose.yaml", "client")
    image = read_image(_file(path / "Dockerfile"))
    image.environment |= compose
    script = offline_script(_text(path / "run-tests.sh"), "run-tests.sh")
    tests = [file for file in files_of(path / "tests", "/tests") if file.path != "/tests"]
    return TaskFolder(
        name=path.name,
        kind="terminal-bench",
        instruction=given["instruction"],
        image=image,
        agent_s=float(given.get("max_agent_timeout_sec", 360)),
        verifier_s=float(given.get("max_test_timeout_sec", 60)),
        memory_mb=0,
        script="/tests/run-tests.sh",
        tests=(*tests, File("/tests/run-tests.sh", 0o755, script.encode())),
        verifier_env={"TEST_DIR": "/tests"},
        solution=_terminal_bench_solution(path),
        writable=_writable(image, path),
    )


def _terminal_bench_solution(path: Path) -> tuple[str, ...]:
    if (path / "solution.sh").is_file():
        script = _text(path / "solution.sh")
    elif (path / "solution.yaml").is_file():
        steps = yaml.safe_load(_text(path / "solution.yaml")) or []
        script = "\n".join(str(step["command"]) for step in steps)
    else:
        return ()
    refuse_fetching_script(script, "solution")
    return (script,)


def _check_compose(file: Path, only: str) -> dict[str, str]:
    """The environment of the one service; Refused if there is another, or if it is more than a container."""
    if not file.is_file():
        return {}
    given = yaml.safe_load(_text(file)) or {}
    services = given.get("services") or {}
    others = sorted({*services} - {only})
    if others or given.keys() - {"services", "version", "name"}:
        what = others or sorted(given.keys() - {"services", "version", "name"})
        raise TaskRefused(
            f"{file.name}: {', '.join(map(str, what))}", f"only the service {only!r} can be in the sandbox"
        )
    service = services.get(only) or {}
    strange = sorted(service.keys() - SERVICE)
    if strange:
        raise TaskRefused(
            f"{file.name}: {strange[0]}: {service[strange[0]]!r:.100}", "it has no meaning in the sandbox"
        )
    mounts = [each for each in service.get("volumes") or () if not HARNESS.match(str(each))]
    if mounts:
        raise TaskRefused(f"{file.name}: volumes: {mounts[0]}", "no folder of this machine is mounted")
    pairs = service.get("environment") or {}
    if isinstance(pairs, list):
        pairs = dict(str(pair).split("=", 1) for pair in pairs if "=" in str(pair))
    own = {str(name): str(value) for name, value in pairs.items() if not HARNESS.match(str(value))}
    return _plain(own, f"{file.name}: environment")


def _tests(folder: Path, script: str) -> tuple[File, ...]:
    """The files of /tests, with the script as it runs without a network."""
    offline = offline_script(_text(folder / script), f"tests/{script}")
    others = [file for file in files_of(folder, "/tests") if file.path not in ("/tests", f"/tests/{script}")]
    return (*others, File(f"/tests/{script}", 0o755, offline.encode()))


def _writable(image: Image, path: Path) -> tuple[str, ...]:
    """Folders of the root in which the box can be written to: those that are always there, and those that it names."""
    if image.folder == "/":
        raise TaskRefused("Dockerfile", "it has no WORKDIR, and / cannot be written to in the sandbox")
    steps = [step.target if isinstance(step, Copy) else step.command for step in image.steps]
    texts = [*image.folders, *image.environment.values(), *steps]
    for name in ("instruction.md", "task.yaml", "solution/solve.sh", "solution.sh", "solution.yaml"):
        if (path / name).is_file():
            texts.append(_text(path / name))
    found = dict.fromkeys(name for text in texts for name in PATHS.findall(text) if name not in SYSTEM)
    return tuple(dict.fromkeys([*ALWAYS_WRITABLE, *(f"/{name}" for name in [*found][:MOST_FOLDERS])]))


def _plain(environment: Mapping[str, Any], where: str) -> dict[str, str]:
    for name, value in environment.items():
        if re.search(r"\$\{", str(value)):
            raise TaskRefused(f"{where}: {name} = {value!r}", "variables of this machine are not passed on")
    return {str(name): str(value) for name, value in environment.items()}


def _megabytes(size: Any) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([GMK]?)B?", str(size).strip().upper())
    if found is None:
        raise TaskRefused(f"task.toml [environment] memory = {size!r}", "a size such as 2G or 2048 is needed")
    return int(float(found[1]) * {"G": 1024, "K": 1 / 1024}.get(found[2], 1))


def _quote(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _file(path: Path) -> Path:
    if not path.is_file():
        raise TaskRefused(path.name, "it is not there")
    return path


def _text(path: Path) -> str:
    return _file(path).read_text("utf-8")
