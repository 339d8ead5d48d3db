"""A stock: find the shortages, order the right amounts, and order them once."""

from random import Random

from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.corpus import FIRST, THINGS
from loomrl.envs.tool.kit import Arguments, PolicyTool, all_pages, fields, page_of, text, whole
from loomrl.envs.tool.problem import ToolProblem, faults_for
from loomrl.envs.tool.world import Row, ToolWorld
from loomrl.gym.generate import between

MOST = 10_000


def inventory_problem(level: int, rng: Random) -> ToolProblem:
    """One order dictated at level 1; at level 10 all that one supplier's items lack, in full boxes."""
    world = _stock(rng, between(level, 2, 18))
    if level <= 2:
        row = rng.choice(world.tables["items"])
        count = rng.randint(5, 99)
        request = f"Order {count} of item {row['item']}."
        orders = [(row["item"], count)]
        looks: list[FunctionCall] = []
    else:
        request, orders = (_order_by_name, _short, _order_from_supplier, _order_boxes)[(level - 3) // 2](world, rng)
        looks = [FunctionCall("list_items", page) for page in all_pages(world.tables["items"])]
    return ToolProblem(
        request=request,
        world=world,
        tools=(ORDER,) if level <= 2 else TOOLS,
        script=(*looks, *(FunctionCall("order_item", {"item": item, "count": count}) for item, count in orders)),
        decoys=DECOYS[: between(level, 0, len(DECOYS))],
        check=lambda call: FunctionCall("list_orders", {}),
        faults=faults_for(level, rng, session=True),
    )


Orders = list[tuple[str, int]]


def _stock(rng: Random, count: int) -> ToolWorld:
    suppliers = rng.sample(FIRST, 3)
    numbers = rng.sample(range(100, 1000), count)
    rows: list[Row] = []
    for number, name in zip(numbers, rng.sample(THINGS, count), strict=True):
        short = rng.random() < 0.4 or not rows
        stock = rng.randint(20, 400)
        gap = rng.randint(3, 90)
        rows.append(
            {
                "item": f"I{number}",
                "name": name,
                "stock": stock,
                "minimum": stock + gap if short else max(1, stock - gap),
                "box": rng.randint(4, 24),
                "supplier": suppliers[0] if not rows else rng.choice(suppliers),
            }
        )
    return ToolWorld(tables={"items": rng.sample(rows, count), "orders": [], "requests": []})


def _order_by_name(world: ToolWorld, rng: Random) -> tuple[str, Orders]:
    row = rng.choice(world.tables["items"])
    count = rng.randint(5, 99)
    return f"Order {count} {row['name']}s.", [(row["item"], count)]


def _short(world: ToolWorld, rng: Random) -> tuple[str, Orders]:
    orders = [(row["item"], row["minimum"] - row["stock"]) for row in _lacking(world)]
    return "Of every item below its minimum, order what lacks to the minimum: one order for each item.", orders


def _order_from_supplier(world: ToolWorld, rng: Random) -> tuple[str, Orders]:
    supplier = rng.choice(_lacking(world))["supplier"]
    orders = [(row["item"], row["minimum"] - row["stock"]) for row in _lacking(world) if row["supplier"] == supplier]
    request = (
        f"Of every item supplied by {supplier} that is below its minimum, order what lacks to the minimum: one order "
        "for each item."
    )
    return request, orders


def _order_boxes(world: ToolWorld, rng: Random) -> tuple[str, Orders]:
    supplier = rng.choice(_lacking(world))["supplier"]
    orders = [
        (row["item"], -(-(row["minimum"] - row["stock"]) // row["box"]) * row["box"])
        for row in _lacking(world)
        if row["supplier"] == supplier
    ]
    request = (
        f"Of every item supplied by {supplier} that is below its minimum, order so many pieces that the minimum is "
        "reached, but only full boxes, and no box too many: one order for each item, counted in pieces."
    )
    return request, orders


def _lacking(world: ToolWorld) -> list[Row]:
    return [row for row in world.tables["items"] if row["stock"] < row["minimum"]]


def _order(world: ToolWorld, arguments: Arguments, *, scale: int = 1) -> Row:
    row = world.row("items", "item", arguments["item"])
    return dict(world.add("orders", item=row["item"], count=arguments["count"] * scale))


def _recount(world: ToolWorld, arguments: Arguments) -> Row:
    row = world.row("items", "item", arguments["item"])
    row["stock"] = arguments["count"]
    return dict(row)


_COUNT = whole("pieces", 1, MOST)
_WISH = fields(item=text("such as I12"), count=_COUNT)
_PAGE = fields(page=whole("of the list, from 1", 1, 50), optional=("page",))
_ITEM = fields(item=text("such as I12"))
ORDER = PolicyTool("order_item", "order pieces of an item", _WISH, _order, True)
TOOLS = (
    ORDER,
    PolicyTool("list_items", "all items, page by page", _PAGE, lambda world, a: page_of(world.tables["items"], a)),
    PolicyTool("get_item", "one item", _ITEM, lambda world, a: dict(world.row("items", "item", a["item"]))),
    PolicyTool("list_orders", "the orders made, newest first, page by page", _PAGE,
         lambda world, a: page_of(world.tables["orders"][::-1], a)),
)  # fmt: skip
DECOYS = (
    PolicyTool("set_stock", "correct the number in stock after a count; orders nothing", _WISH, _recount, True),
    PolicyTool("order_item_v1", "deprecated: order an item in dozens", _WISH,
         lambda w, a: _order(w, a, scale=12), True),
    PolicyTool("request_item", "ask the buyers to think about an order", _WISH,
         lambda world, a: dict(world.add("requests", **a)), True),
    PolicyTool("forecast_item", "how many pieces of an item will be needed next year", _ITEM,
         lambda world, a: {"forecast": 4 * world.row("items", "item", a["item"])["minimum"]}),
)  # fmt: skip
