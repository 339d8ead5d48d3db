"""LoomDB: records of environments, runs, policies, evaluations and deployments, with their lineage."""

from loomrl.store.db import LoomDB, beside, connect, make_schema

__all__ = ["LoomDB", "beside", "open_store"]


def open_store(url: str) -> LoomDB:
    """The LoomDB behind `sqlite:///FILE` or `postgresql://USER@HOST/NAME`, migrated to the current schema."""
    from loomrl.store.migration import migrate

    make_schema(url)
    db = LoomDB(connect(url))
    try:
        migrate(db)
    except BaseException:
        db.close()
        raise
    return db
