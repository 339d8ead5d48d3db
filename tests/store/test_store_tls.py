"""PostgreSQL over TLS: the URL says whom to trust."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from loomrl.store import beside, open_store
from tests.tls_samples import Issued, issue

pytestmark = pytest.mark.system


@pytest.fixture
def issued(postgres_url: str, tmp_path: Path) -> Iterator[Issued]:
    """The server shows this certificate during a test, to whom asks for it."""
    made = issue(tmp_path)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        (folder,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        owner = Path(folder).stat()
        for name, file in (("ssl_cert_file", made.certificate.chain), ("ssl_key_file", made.certificate.key)):
            kept = Path(folder) / file.name
            shutil.copy(file, kept)
            kept.chmod(0o600)
            os.chown(kept, owner.st_uid, owner.st_gid)
            connection.execute(f"ALTER SYSTEM SET {name} = '{file.name}'")
        for state in ("on", "off"):
            connection.execute(f"ALTER SYSTEM SET ssl = {state}")
            connection.execute("SELECT pg_reload_conf()")
            if state == "on":
                yield made


def test_a_store_and_those_beside_it_speak_tls_with_a_server_they_know(postgres_url: str, issued: Issued) -> None:
    known = f"{postgres_url}?sslmode=verify-full&sslrootcert={issued.authority}"
    for url in (known, beside(known, "hub")):
        with open_store(url) as db, db.read() as connection:
            assert connection.exec_driver_sql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").scalar()
