"""A certificate for 127.0.0.1, and the authority that clients have to trust for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from loomrl.http.listen import Certificate


@dataclass(frozen=True, slots=True)
class Issued:
    """Files in PEM."""

    certificate: Certificate
    authority: Path


def issue(folder: Path, *names: str) -> Issued:
    """A certificate for this machine, and for further names."""
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1", *names)
    chain, key, root = (folder / f"{name}.pem" for name in ("chain", "key", "root"))
    for blob in made.cert_chain_pems:
        blob.write_to_path(str(chain), append=True)
    made.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(root))
    return Issued(Certificate(chain, key), root)


@contextmanager
def trusting(authority: Path) -> Iterator[None]:
    """Clients of this process trust the authority, as by `SSL_CERT_FILE`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority))
        yield
