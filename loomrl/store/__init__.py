"""LoomDB: records of environments, runs, policies, evaluations and deployments, with their lineage."""

from loomrl.store.db import LoomDB, beside, connect, make_schema, refuse_other_time

__all__ = ["RECONNECT_S", "LoomDB", "beside", "open_store"]


RECONNECT_S = 50.0
"""How long a training waits for its database's server; less than a thread waits for another's write."""


def open_store(url: str, *, reconnect_s: float = 0.0) -> LoomDB:
    """The LoomDB behind `sqlite:///FILE` or `postgresql://USER@HOST/NAME`, migrated to the current schema.

    `reconnect_s`: how long to wait for a server that was there and is away, such as one that is restarted.
    """
    from loomrl.store.migration import migrate

    make_schema(url)
    db = LoomDB(connect(url, reconnect_s=reconnect_s))
    try:
        refuse_other_time(db)
        migrate(db)
    except BaseException:
        db.close()
        raise
    return db
