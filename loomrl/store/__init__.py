"""LoomDB: what was registered, run, learnt, judged and deployed, and from what."""

from loomrl.store.db import LoomDB, connect

__all__ = ["LoomDB", "open_store"]


def open_store(url: str) -> LoomDB:
    """The LoomDB behind `sqlite:///FILE` or `postgresql://USER@HOST/NAME`, brought to the schema of this code."""
    from loomrl.store.migration import migrate

    db = LoomDB(connect(url))
    try:
        migrate(db)
    except BaseException:
        db.close()
        raise
    return db
