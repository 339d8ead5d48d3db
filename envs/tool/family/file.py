"""Files: written, appended to, moved, looked through."""

from random import Random

from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.corpus import FIRST, THINGS, WORDS
from loomrl.envs.tool.kit import Arguments, PolicyTool, fields, text
from loomrl.envs.tool.problem import ToolProblem, faults_for
from loomrl.envs.tool.world import MOST_CHARACTERS, ToolError, ToolWorld
from loomrl.gym.generate import between

Task = tuple[str, dict[str, str], list[FunctionCall]]
"""The request, the files, and the solution."""


def file_problem(level: int, rng: Random) -> ToolProblem:
    """One file written at level 1; at level 10 many read and moved, and an index written of them."""
    request, files, script = _TASKS[(level - 1) // 2](level, rng)
    names = {call.name for call in script}
    return ToolProblem(
        request=request,
        world=ToolWorld(files=files),
        tools=tuple(tool for tool in TOOLS if tool.name in names or level > 2),
        script=tuple(script),
        decoys=DECOYS[: between(level, 0, len(DECOYS))],
        check=lambda call: FunctionCall("list_files", {}),
        faults=faults_for(level, rng),
    )


def _write(level: int, rng: Random) -> Task:
    path = f"{rng.choice(THINGS)}.txt"
    words = " ".join(rng.sample(WORDS, level + 1))
    return (
        f"Write the text '{words}' to the file {path}.",
        {},
        [FunctionCall("write_file", {"path": path, "text": words})],
    )


def _append(level: int, rng: Random) -> Task:
    files = {f"{name}.txt": " ".join(rng.sample(WORDS, 3)) for name in rng.sample(THINGS, 3)}
    path = rng.choice(list(files))
    line = " ".join(rng.sample(WORDS, 3))
    target = f"old/{path}"
    script = [
        FunctionCall("append_line", {"path": path, "line": line}),
        FunctionCall("move_file", {"path": path, "target": target}),
    ]
    return f"Append the line '{line}' to {path}, then move the file to {target}.", files, script


def _settings(level: int, rng: Random) -> Task:
    """Find the file by its content, and change one line."""
    files: dict[str, str] = {}
    names = rng.sample(THINGS, between(level, 3, 12))
    ports = rng.sample(range(2000, 9000), 12)
    for number, (name, port) in enumerate(zip(names, ports, strict=False)):
        files[f"etc/{number + 1}.conf"] = f"service: {name}\nport: {port}\nretries: {rng.randint(1, 9)}"
    script: list[FunctionCall] = []
    wishes = []
    for name in rng.sample(names, between(level, 1, 3)):
        path = f"etc/{names.index(name) + 1}.conf"
        port = rng.randint(2000, 9000)
        old = f"port: {ports[names.index(name)]}"
        wishes.append(f"the port of service {name} to {port}")
        changed = files[path].replace(old, f"port: {port}")
        script += [
            FunctionCall("find_text", {"text": f"service: {name}"}),
            FunctionCall("read_file", {"path": path}),
            FunctionCall("write_file", {"path": path, "text": changed}),
        ]
    return f"In the settings under etc/, change {' and '.join(wishes)}. Change nothing else.", files, script


def _total(level: int, rng: Random) -> Task:
    """Add up what several files say."""
    files = {f"notes/{rng.choice(WORDS)}.txt": "amount: 1000"}
    total = 0
    script = [FunctionCall("list_files", {"folder": "sales"})]
    for day in range(1, between(level, 3, 9)):
        amounts = [rng.randint(10, 99) for _ in range(between(level, 2, 6))]
        path = f"sales/day{day}.csv"
        files[path] = "\n".join(f"{rng.choice(THINGS)},{amount}" for amount in amounts)
        total += sum(amounts)
        script.append(FunctionCall("read_file", {"path": path}))
    script.append(FunctionCall("write_file", {"path": "total.txt", "text": str(total)}))
    request = (
        "Every line of the files under sales/ ends with an amount. Write the sum of all amounts, as a bare number, to "
        "total.txt."
    )
    return request, files, script


def _archive(level: int, rng: Random) -> Task:
    """Move closed items, list them, and note the remaining amounts."""
    files: dict[str, str] = {}
    script = [FunctionCall("find_text", {"text": "status: closed"})]
    closed = []
    left = 0
    owner, other = rng.sample(FIRST, 2)
    for number in rng.sample(range(100, 1000), between(level, 3, 10)):
        amount = rng.randint(10, 999)
        who = rng.choice((owner, other))
        state = rng.choice(("open", "closed"))
        files[f"cases/{number}.txt"] = f"owner: {who}\nstatus: {state}\namount: {amount}"
        left += amount * (who == owner and state == "open")
        closed += [number] * (state == "closed")
    script += [
        FunctionCall("move_file", {"path": f"cases/{n}.txt", "target": f"archive/{n}.txt"}) for n in sorted(closed)
    ]
    script.append(FunctionCall("find_text", {"text": f"owner: {owner}"}))
    script += [
        FunctionCall("read_file", {"path": path})
        for path in sorted(files)
        if f"owner: {owner}\nstatus: open" in files[path]
    ]
    text = "\n".join([*map(str, sorted(closed)), f"left: {left}"])
    script.append(FunctionCall("write_file", {"path": "index.txt", "text": text}))
    request = (
        "Move every file under cases/ whose status is closed to archive/, under the same name. Then write index.txt: "
        "the numbers of the moved cases, smallest first, one per line, and a last line 'left: N', where N is the sum "
        f"of the amounts of {owner}'s open cases."
    )
    return request, files, script


_TASKS = (_write, _append, _settings, _total, _archive)


def _load(world: ToolWorld, path: str) -> str:
    if path not in world.files:
        raise ToolError(404, f"there is no file {path[:60]!r}")
    return world.files[path]


def _list_files(world: ToolWorld, arguments: Arguments) -> list[str]:
    folder = arguments.get("folder", "").strip("/")
    return sorted(path for path in world.files if not folder or path.startswith(f"{folder}/"))


def _write_file(world: ToolWorld, arguments: Arguments) -> str:
    world.write(arguments["path"], arguments["text"])
    return "written"


def _append_line(world: ToolWorld, arguments: Arguments) -> str:
    before = _load(world, arguments["path"])
    world.write(arguments["path"], f"{before.rstrip(chr(10))}\n{arguments['line']}" if before else arguments["line"])
    return "appended"


def _move_file(world: ToolWorld, arguments: Arguments) -> str:
    text = _load(world, arguments["path"])
    if arguments["target"] in world.files:
        raise ToolError(409, "the target exists")
    del world.files[arguments["path"]]
    world.write(arguments["target"], text)
    return "moved"


def _find_text(world: ToolWorld, arguments: Arguments) -> list[str]:
    return sorted(path for path, text in world.files.items() if arguments["text"] in text)


def _delete_file(world: ToolWorld, arguments: Arguments) -> str:
    _load(world, arguments["path"])
    del world.files[arguments["path"]]
    return "deleted"


def _draft(world: ToolWorld, arguments: Arguments) -> str:
    world.write(f"drafts/{arguments['path']}", arguments["text"])
    return "written"


def _append_raw(world: ToolWorld, arguments: Arguments) -> str:
    world.write(arguments["path"], _load(world, arguments["path"]) + arguments["line"])
    return "appended"


_YESTERDAY = str.maketrans("0123456789", "3456789012")
_PATH = text("such as a/b.txt")
_TEXT = text("the whole text", longest=MOST_CHARACTERS)
WRITE_FILE = PolicyTool(
    "write_file", "make a file, or replace its text", fields(path=_PATH, text=_TEXT), _write_file, True
)
READ_FILE = PolicyTool("read_file", "the text of a file", fields(path=_PATH), lambda world, a: _load(world, a["path"]))
MOVE_FILE = PolicyTool("move_file", "give a file another path", fields(path=_PATH, target=_PATH), _move_file, True)
TOOLS = (
    WRITE_FILE,
    READ_FILE,
    MOVE_FILE,
    PolicyTool("append_line", "add a line to the end of a file", fields(path=_PATH, line=text("the line")),
         _append_line, True),
    PolicyTool("list_files", "the paths of all files, or of those in a folder",
         fields(folder=text("such as a/b"), optional=("folder",)), _list_files),
    PolicyTool("find_text", "the paths of the files that contain a text",
         fields(text=text("what to look for")), _find_text),
)  # fmt: skip
DECOYS = (
    PolicyTool("write_draft", "write a file in the folder of drafts", fields(path=_PATH, text=_TEXT), _draft, True),
    PolicyTool("append_raw", "deprecated: add text to a file without a line break",
         fields(path=_PATH, line=text("the text")),
         _append_raw, True),
    PolicyTool("read_snapshot", "the text of a file, from last week's backup", fields(path=_PATH),
         lambda world, a: _load(world, a["path"]).translate(_YESTERDAY)),
    PolicyTool("delete_file", "delete a file for ever", fields(path=_PATH), _delete_file, True),
)  # fmt: skip
