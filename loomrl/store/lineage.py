"""The origin and descendants of policy versions, for `loomrl policies show ID`, as plain data."""

from typing import Any

from sqlalchemy import Connection, Select, literal, select

from loomrl.store.db import LoomDB
from loomrl.store.rows import Row, from_json, require
from loomrl.store.tables import deployments, evaluations, policies, runs

Tree = dict[str, Any]


def lineage(db: LoomDB, id: str) -> Tree:
    """A policy version's origin, its ancestors with theirs, and its descendants.

    `ancestors` is a list, nearest first: a run of many updates makes a chain that is too deep to nest.
    """
    with db.read() as connection:
        require(connection, policies, id)
        itself, *ancestors = [_origin(row) for row in connection.execute(_chain(id)).mappings()]
        return {
            **itself,
            "ancestors": ancestors,
            "children": _ids(connection, select(policies.c.id).where(policies.c.parent == id)),
            "evaluations": _ids(connection, select(evaluations.c.id).where(evaluations.c.policy == id)),
            "deployments": _ids(connection, select(deployments.c.id).where(deployments.c.policy == id)),
        }


def _chain(id: str) -> Select[Any]:
    """The version and its ancestors, nearest first, each beside the run that made it."""
    start = select(policies.c.id, policies.c.parent, literal(0).label("depth")).where(policies.c.id == id)
    chain = start.cte("chain", recursive=True)
    parent = select(policies.c.id, policies.c.parent, chain.c.depth + 1).where(policies.c.id == chain.c.parent)
    chain = chain.union_all(parent)
    run = runs.c.kind, runs.c.name, runs.c.environments, runs.c.parent_policy
    made_by = select(policies, *run).join(chain, policies.c.id == chain.c.id).join(runs, policies.c.run == runs.c.id)
    return made_by.order_by(chain.c.depth)


def _origin(row: Row) -> Tree:
    policy = {name: row[name] for name in ("id", "number", "algorithm", "url", "stage", "parent", "created_at")}
    run = {"id": row["run"], "name": row["name"], "kind": row["kind"], "parent_policy": row["parent_policy"]}
    made_from = {
        "run": run,
        "experiment": row["experiment"],
        "code": row["code"],
        "data": from_json(row["data"]),
        "environments": from_json(row["environments"]),
    }
    return {**policy, "made_from": made_from}


def _ids(connection: Connection, query: Select[tuple[str]]) -> list[str]:
    return sorted(connection.scalars(query))
