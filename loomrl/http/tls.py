"""TLS: the certificate that a server shows, and whom clients trust."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from loomrl.errors import ServeError


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM."""

    chain: Path
    """The certificate, and those between it and a root."""
    key: Path
    """Its private key, without a password."""

    def context(self) -> ssl.SSLContext:
        """For a server, TLS 1.2 at least. A ServeError names what is wrong with the files."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(made)
        return made

    def joined(self) -> bytes:
        """Chain and key in one text, as HAProxy wants them."""
        self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        return b"\n".join(file.read_bytes() for file in dict.fromkeys((self.chain, self.key)))

    def _load(self, context: ssl.SSLContext) -> None:
        for name, file in (("certificate", self.chain), ("key", self.key)):
            if not file.is_file():
                raise ServeError(f"tls: {name}={str(file)!r}: there is no such file on this machine.")
        try:
            context.load_cert_chain(self.chain, self.key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ServeError(
                f"tls: certificate={str(self.chain)!r}, key={str(self.key)!r}: {error}. A certificate and its "
                "private key are needed, in PEM, the key without a password."
            ) from None


def trusted() -> ssl.SSLContext:
    """For a client: whom this machine trusts, and whom SSL_CERT_FILE names."""
    return ssl.create_default_context()


def _no_password() -> str:
    raise ValueError("its key has a password")
