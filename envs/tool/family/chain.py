"""Several tools, one after the other: what one answers, the next one needs."""

from dataclasses import replace
from random import Random

from loomrl.envs.tool.amount import spelt, value_of
from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.family import booking, calculator, file, search
from loomrl.envs.tool.kit import PolicyTool
from loomrl.envs.tool.problem import ToolProblem, faults_for
from loomrl.envs.tool.world import ToolWorld
from loomrl.gym.generate import between


def chain_problem(level: int, rng: Random) -> ToolProblem:
    """Compute and write at level 1; at level 10 look up, compute, book and confirm, among a dozen decoys."""
    problem = (_compute, _look_up, _compare, _host)[between(level, 0, 3)](level, rng)
    decoys = (*calculator.DECOYS, *search.DECOYS, *file.DECOYS, *booking.DECOYS)
    return replace(
        problem,
        decoys=tuple(rng.sample(decoys, between(level, 0, 12))),
        faults=faults_for(level, rng, session=level >= 9),
    )


def _compute(level: int, rng: Random) -> ToolProblem:
    """A product, written to a file."""
    expression = f"{rng.randint(10 ** (level + 1), 10 ** (level + 2))} * {rng.randint(11, 999)}"
    path = f"{rng.choice('abcdefgh')}.txt"
    script = FunctionCall("calculate", {"expression": expression}), _note(path, spelt(value_of(expression)))
    return ToolProblem(f"Write the value of {expression} to the file {path}.", ToolWorld(), _TWO, script)


def _look_up(level: int, rng: Random) -> ToolProblem:
    """A fact, written to a file."""
    edition = f"{rng.getrandbits(48):x}"
    phrase, answer, script = search.question(rng, edition, hops=between(level, 1, 4), level=level)
    tools = (*search.library(level), file.WRITE_FILE, file.READ_FILE)
    request = f"Find out {phrase}, and write nothing but that to fact.txt."
    return ToolProblem(request, ToolWorld(edition=edition), tools, (*script, _note("fact.txt", answer)))


def _compare(level: int, rng: Random) -> ToolProblem:
    """Two facts and what follows from them, written to a file, and an older one moved out of the way."""
    edition = f"{rng.getrandbits(48):x}"
    hops = between(level, 1, 3)
    first, one, looks = search.question(rng, edition, hops=hops, level=level, last="count")
    second, two, more = search.question(rng, edition, hops=hops, level=level, last="count")
    factor = rng.randint(12, 99)
    expression = f"({one} + {two}) * {factor}"
    request = (
        f"Add {first} and {second}, multiply the sum by {factor}, and write the result as a bare number to result.txt. "
        "Before that, move the old result.txt to old/result.txt."
    )
    script = (
        *looks,
        *more,
        FunctionCall("calculate", {"expression": expression}),
        FunctionCall("move_file", {"path": "result.txt", "target": "old/result.txt"}),
        _note("result.txt", spelt(value_of(expression))),
    )
    files = {"result.txt": str(rng.randint(100, 999)), "readme.txt": "results are kept"}
    tools = (*search.library(level), *file.TOOLS, calculator.CALCULATE)
    return ToolProblem(request, ToolWorld(edition, files), tools, script, check=_look_again)


def _host(level: int, rng: Random) -> ToolProblem:
    """Find a person, book a room for them, and leave them a note."""
    edition = f"{rng.getrandbits(48):x}"
    phrase, guest, script = search.question(rng, edition, hops=between(level, 1, 3), level=level, last="person")
    world = booking.rooms(rng, between(level, 4, 12), filled=between(level, 5, 40))
    world.edition = edition
    room, seats, day, hour = booking.find_room(world, rng)
    request = (
        f"Find out {phrase}. Book for them, under their full name, the smallest room with at least {seats} seats "
        f"that is free on day {day} at hour {hour}. Then write only the name of the room to invitation.txt."
    )
    wish = {"room": room, "day": day, "hour": hour, "guest": guest}
    script = (
        *script,
        *booking.look_around(world, day),
        FunctionCall("create_booking", wish),
        _note("invitation.txt", room),
    )
    tools = (*search.library(level), *booking.TOOLS, *file.TOOLS)
    return ToolProblem(request, world, tools, script, check=_look_again)


def _look_again(change: FunctionCall) -> FunctionCall:
    return booking.look_again(change) if change.name == "create_booking" else FunctionCall("list_files", {})


def _note(path: str, text: str) -> FunctionCall:
    return FunctionCall("write_file", {"path": path, "text": text})


_TWO: tuple[PolicyTool, ...] = (calculator.CALCULATE, file.WRITE_FILE)
