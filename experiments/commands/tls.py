"""The option of commands that can serve over HTTPS."""

from pathlib import Path
from typing import Annotated

import typer

Tls = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--tls",
        metavar="CERTIFICATE KEY",
        envvar="LOOMRL_TLS",
        help="Speak HTTPS: a certificate with its chain, and its private key, in PEM.",
    ),
]
