"""LoomDB: what was registered, run, learnt, judged and deployed, and from what."""

from loomrl.store.db import LoomDB, beside, connect, make_schema

__all__ = ["LoomDB", "beside", "open_store"]


def open_store(url: str) -> LoomDB:
    """The LoomDB behind `sqlite:///FILE` or `postgresql://USER@HOST/NAME`, brought to the schema of this code."""
    from loomrl.store.migration import migrate

    make_schema(url)
    db = LoomDB(connect(url))
    try:
        migrate(db)
    except BaseException:
        db.close()
        raise
    return db
