import pytest

from loomrl.store import LoomDB


@pytest.fixture
def db(store: LoomDB) -> LoomDB:
    return store
