"""Rooms: which is free and large enough, and bookings that are made, moved and never made twice."""

from collections.abc import Mapping
from random import Random
from typing import Any

from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.corpus import FIRST
from loomrl.envs.tool.kit import Arguments, PolicyTool, all_pages, fields, page_of, text, whole
from loomrl.envs.tool.problem import ToolProblem, faults_for
from loomrl.envs.tool.world import Row, ToolError, ToolWorld
from loomrl.gym.generate import between

FIRST_HOUR = 8
LAST_HOUR = 17
DAYS = 2


def booking_problem(level: int, rng: Random) -> ToolProblem:
    """One booking dictated at level 1; at level 10 several, moved ones too, in rooms that have to be found."""
    world = rooms(rng, between(level, 3, 14), filled=between(level, 0, 24))
    if level <= 2:
        request, script = _dictate(world, rng)
        tools: tuple[PolicyTool, ...] = (CREATE,) if level == 1 else (CREATE, CANCEL)
    else:
        request, script = _ask(world, level, rng)
        tools = TOOLS
    return ToolProblem(
        request=request,
        world=world,
        tools=tools,
        script=tuple(script),
        decoys=DECOYS[: between(level, 0, len(DECOYS))],
        check=look_again,
        faults=faults_for(level, rng, session=True),
    )


def rooms(rng: Random, count: int, *, filled: int) -> ToolWorld:
    """A house with rooms of different sizes, of which some are taken at times."""
    sizes = rng.sample(range(4, 60), count)
    house: list[Row] = [
        {"room": f"R{n + 1}", "seats": seats, "floor": rng.randint(1, 4)} for n, seats in enumerate(sizes)
    ]
    world = ToolWorld(tables={"rooms": house, "bookings": [], "waiting": []})
    for _ in range(filled):
        room = rng.choice(house)["room"]
        day = rng.randint(1, DAYS)
        hour = rng.randint(FIRST_HOUR, LAST_HOUR)
        if not _is_taken(world, room, day, hour):
            world.add("bookings", room=room, day=day, hour=hour, guest=rng.choice(FIRST[12:]))
    return world


def find_room(world: ToolWorld, rng: Random) -> tuple[str, int, int, int]:
    """The smallest free room with enough seats: which, for how many, on which day, and when."""
    while True:
        seats = rng.randint(4, 50)
        day = rng.randint(1, DAYS)
        hour = rng.randint(FIRST_HOUR, LAST_HOUR)
        fitting = [row for row in world.tables["rooms"] if row["seats"] >= seats]
        free = [row for row in fitting if not _is_taken(world, row["room"], day, hour)]
        if free:
            return min(free, key=lambda row: row["seats"])["room"], seats, day, hour


def look_around(world: ToolWorld, *days: int) -> list[FunctionCall]:
    """Every page of the rooms, and of the bookings of these days."""
    calls = [FunctionCall("list_rooms", page) for page in all_pages(world.tables["rooms"])]
    for day in sorted(set(days)):
        booked = [row for row in world.tables["bookings"] if row["day"] == day]
        calls += [FunctionCall("list_bookings", {"day": day, **page}) for page in all_pages(booked)]
    return calls


def look_again(change: FunctionCall) -> FunctionCall:
    """The bookings that show a change: those of its day, or of the first day if it names none."""
    return FunctionCall("list_bookings", {"day": change.arguments.get("day", 1)})


def _dictate(world: ToolWorld, rng: Random) -> tuple[str, list[FunctionCall]]:
    room, _, day, hour = find_room(world, rng)
    guest = rng.choice(FIRST[:12])
    wish = {"room": room, "day": day, "hour": hour, "guest": guest}
    return f"Book room {room} on day {day} at hour {hour} for {guest}.", [FunctionCall("create_booking", wish)]


def _ask(world: ToolWorld, level: int, rng: Random) -> tuple[str, list[FunctionCall]]:
    """Wishes, one after the other: each is fulfilled in the world that the one before has left."""
    guests = rng.sample(FIRST[:12], between(level, 1, 3))
    moving = guests[1:] if level >= 6 else []
    for guest in moving:
        room, _, day, hour = find_room(world, rng)
        world.add("bookings", room=room, day=day, hour=hour, guest=guest)
    wishes: list[str] = []
    script: list[FunctionCall] = []
    days: list[int] = []
    later = world.copy()
    for guest in guests:
        if guest in moving:
            row = later.row("bookings", "guest", guest)
            days.append(row["day"])
            wishes.append(f"cancel {guest}'s booking on day {row['day']}")
            script.append(_done(later, FunctionCall("cancel_booking", {"booking": row["id"]})))
        room, seats, day, hour = find_room(later, rng)
        days.append(day)
        wishes.append(
            f"book for {guest} the smallest room with at least {seats} seats that is free on day {day} at hour {hour}"
        )
        wish = {"room": room, "day": day, "hour": hour, "guest": guest}
        script.append(_done(later, FunctionCall("create_booking", wish)))
    order = "In this order: " if len(wishes) > 1 else ""
    request = f"{order}{'; '.join(wishes)}."
    return request[0].upper() + request[1:], look_around(world, *days) + script


def _done(world: ToolWorld, call: FunctionCall) -> FunctionCall:
    """The call, carried out."""
    next(tool for tool in TOOLS if tool.name == call.name).run(world, call.arguments)
    return call


def _is_taken(world: ToolWorld, room: str, day: int, hour: int) -> bool:
    wanted = (room, day, hour)
    return any((row["room"], row["day"], row["hour"]) == wanted for row in world.tables["bookings"])


def _create(world: ToolWorld, arguments: Arguments) -> Row:
    world.row("rooms", "room", arguments["room"])
    if _is_taken(world, arguments["room"], arguments["day"], arguments["hour"]):
        raise ToolError(409, "the room is taken at that time")
    return dict(world.add("bookings", **arguments))


def _cancel(world: ToolWorld, arguments: Arguments) -> str:
    world.tables["bookings"].remove(world.row("bookings", "id", arguments["booking"]))
    return "cancelled"


def _list_bookings(world: ToolWorld, arguments: Arguments) -> Mapping[str, Any]:
    return page_of([row for row in world.tables["bookings"][::-1] if row["day"] == arguments["day"]], arguments)


def _create_v1(world: ToolWorld, arguments: Arguments) -> Row:
    row = _create(world, arguments)
    if arguments["hour"] < LAST_HOUR and not _is_taken(world, row["room"], row["day"], row["hour"] + 1):
        world.add("bookings", **{**arguments, "hour": arguments["hour"] + 1})
    return row


_DAY = whole("from 1", 1, 31)
_HOUR = whole("of the day", FIRST_HOUR, LAST_HOUR)
_PAGE = whole("of the list, from 1", 1, 50)
_WISH = fields(room=text("such as R2"), day=_DAY, hour=_HOUR, guest=text("a name"))
CREATE = PolicyTool("create_booking", "book a room for one hour", _WISH, _create, True)
CANCEL = PolicyTool("cancel_booking", "cancel a booking", fields(booking=text("its id")), _cancel, True)
LIST_ROOMS = PolicyTool("list_rooms", "all rooms, page by page", fields(page=_PAGE, optional=("page",)),
                  lambda world, a: page_of(world.tables["rooms"], a))  # fmt: skip
LIST_BOOKINGS = PolicyTool("list_bookings", "the bookings of a day, newest first, page by page",
                     fields(day=_DAY, page=_PAGE, optional=("page",)), _list_bookings)  # fmt: skip
TOOLS = (CREATE, CANCEL, LIST_ROOMS, LIST_BOOKINGS)
DECOYS = (
    PolicyTool("hold_room", "put a guest on the waiting list of a room", _WISH,
         lambda world, a: dict(world.add("waiting", **a)), True),
    PolicyTool("create_booking_v1", "deprecated: book a room for two hours", _WISH, _create_v1, True),
    PolicyTool("list_rooms_2019", "all rooms, as they were before the rebuilding",
         fields(page=_PAGE, optional=("page",)),
         lambda world, a: page_of([{**row, "seats": 63 - row["seats"]} for row in world.rows("rooms")], a)),
    PolicyTool("quote_room", "what an hour in a room costs", fields(room=text("such as R2")),
         lambda world, a: {"price": 5 * world.row("rooms", "room", a["room"])["seats"]}),
)  # fmt: skip
