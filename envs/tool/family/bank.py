"""Accounts: money that has to arrive once, in the right place, in the right amount."""

from random import Random

from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.corpus import FIRST
from loomrl.envs.tool.kit import Arguments, PolicyTool, all_pages, fields, page_of, text, whole
from loomrl.envs.tool.problem import ToolProblem, faults_for
from loomrl.envs.tool.world import Row, ToolError, ToolWorld
from loomrl.gym.generate import between

MOST = 100_000


def bank_problem(level: int, rng: Random) -> ToolProblem:
    """One dictated transfer at level 1; at level 10 many, whose amounts follow from the accounts."""
    world = _accounts(rng, between(level, 2, 14))
    if level <= 2:
        request, transfers = _dictate(world, rng)
        looks: list[FunctionCall] = []
    else:
        request, transfers = (_name_owners, _exact, _skim, _share)[(level - 3) // 2](world, level, rng)
        looks = [FunctionCall("list_accounts", page) for page in all_pages(world.tables["accounts"])]
    steps = [FunctionCall("transfer", {"source": s, "target": t, "amount": amount}) for s, t, amount in transfers]
    return ToolProblem(
        request=request,
        world=world,
        tools=(TRANSFER,) if level <= 2 else TOOLS,
        script=(*looks, *steps),
        decoys=DECOYS[: between(level, 0, len(DECOYS))],
        check=lambda call: FunctionCall("list_transfers", {}),
        faults=faults_for(level, rng, session=True),
    )


Transfers = list[tuple[str, str, int]]


def _accounts(rng: Random, count: int) -> ToolWorld:
    numbers = rng.sample(range(100, 1000), count)
    rows: list[Row] = [
        {"account": f"A{number}", "owner": owner, "balance": rng.randint(200, 2000)}
        for number, owner in zip(numbers, rng.sample(FIRST, count), strict=True)
    ]
    return ToolWorld(tables={"accounts": rows, "planned": []})


def _dictate(world: ToolWorld, rng: Random) -> tuple[str, Transfers]:
    source, target = rng.sample(world.tables["accounts"], 2)
    amount = rng.randint(10, 190)
    request = f"Transfer {amount} from account {source['account']} to account {target['account']}."
    return request, [(source["account"], target["account"], amount)]


def _name_owners(world: ToolWorld, level: int, rng: Random) -> tuple[str, Transfers]:
    source, target = rng.sample(world.tables["accounts"], 2)
    amount = rng.randint(10, 190)
    request = f"Transfer {amount} from {source['owner']}'s account to {target['owner']}'s account."
    return request, [(source["account"], target["account"], amount)]


def _exact(world: ToolWorld, level: int, rng: Random) -> tuple[str, Transfers]:
    source, target = rng.sample(world.tables["accounts"], 2)
    amount = rng.randint(10, 190)
    wanted = target["balance"] + amount
    request = (
        f"{target['owner']}'s account must have a balance of exactly {wanted}. Transfer what is missing from "
        f"{source['owner']}'s account."
    )
    return request, [(source["account"], target["account"], amount)]


def _skim(world: ToolWorld, level: int, rng: Random) -> tuple[str, Transfers]:
    rows = world.tables["accounts"]
    target = rng.choice(rows)
    others = sorted(row["balance"] for row in rows if row is not target)
    limit = others[-between(level, 1, 5)] - rng.randint(1, 90)
    moved = [
        (row["account"], target["account"], row["balance"] - limit)
        for row in rows
        if row is not target and row["balance"] > limit
    ]
    request = (
        f"From every account with more than {limit}, except {target['owner']}'s, transfer what is above {limit} to "
        f"{target['owner']}'s account."
    )
    return request, moved


def _share(world: ToolWorld, level: int, rng: Random) -> tuple[str, Transfers]:
    """Make the poorest equal to each other, at one owner's expense."""
    rows = world.tables["accounts"]
    source = max(rows, key=lambda row: row["balance"])
    others = sorted((row for row in rows if row is not source), key=lambda row: (row["balance"], row["account"]))
    poor = others[: between(level, 1, 4)]
    limit = max(row["balance"] for row in poor) + rng.randint(1, 90)
    source["balance"] += sum(limit - row["balance"] for row in poor)
    owners = ", ".join(row["owner"] for row in rng.sample(poor, len(poor)))
    request = (
        f"From {source['owner']}'s account, fill up the accounts of these owners to a balance of {limit}: {owners}."
    )
    return request, [(source["account"], row["account"], limit - row["balance"]) for row in poor]


def _transfer(world: ToolWorld, arguments: Arguments, *, fee: int = 0, scale: int = 1) -> Row:
    source = world.row("accounts", "account", arguments["source"])
    target = world.row("accounts", "account", arguments["target"])
    amount = arguments["amount"] // scale
    if source is target:
        raise ToolError(409, "source and target are the same")
    if source["balance"] < amount + fee:
        raise ToolError(402, f"{source['account']} has {source['balance']} only")
    source["balance"] -= amount + fee
    target["balance"] += amount
    world.log.append({**arguments, "amount": amount})
    del world.log[:-40]
    return dict(arguments)


_AMOUNT = whole("in whole coins", 1, MOST)
_ORDER = fields(source=text("an account"), target=text("an account"), amount=_AMOUNT)
_PAGE = fields(page=whole("of the list, from 1", 1, 50), optional=("page",))
_ACCOUNT = fields(account=text("such as A12"))
TRANSFER = PolicyTool("transfer", "move money between two accounts", _ORDER, _transfer, True)
TOOLS = (
    TRANSFER,
    PolicyTool("list_accounts", "all accounts, page by page", _PAGE,
         lambda world, a: page_of(world.tables["accounts"], a)),
    PolicyTool("get_account", "one account", _ACCOUNT,
         lambda world, a: dict(world.row("accounts", "account", a["account"]))),
    PolicyTool("list_transfers", "the transfers made, newest first, page by page", _PAGE,
         lambda world, a: page_of(world.log[::-1], a)),
)  # fmt: skip
DECOYS = (
    PolicyTool("transfer_express", "move money at once, for a fee of 2", _ORDER,
         lambda w, a: _transfer(w, a, fee=2), True),
    PolicyTool("plan_transfer", "move money at the end of the month", _ORDER,
         lambda world, a: dict(world.add("planned", **a)), True),
    PolicyTool("transfer_v1", "deprecated: move money, the amount is in hundredths of a coin", _ORDER,
         lambda w, a: _transfer(w, a, scale=100), True),
    PolicyTool("get_statement", "one account as it was at the end of last year", _ACCOUNT,
         lambda world, a: {**world.row("accounts", "account", a["account"]),
                           "balance": world.row("accounts", "account", a["account"])["balance"] * 3 // 2}),
)  # fmt: skip
