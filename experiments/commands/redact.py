"""`loomrl redact`: what redaction makes of a text."""

import json
import sys
from collections import Counter
from typing import Annotated

import typer


def redact(
    file: Annotated[
        typer.FileBinaryRead, typer.Argument(metavar="FILE", help="A text in UTF-8; - reads standard input.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print kinds and places of the findings as one JSON object, and no text.")
    ] = False,
) -> None:
    """Print a text as it would be stored: without secrets and personal data."""
    from loomrl.safety.placeholder import Counting
    from loomrl.safety.redaction import PatternRedactor
    from loomrl.safety.redaction.redactor import replace_findings

    text = file.read().decode("utf-8", "replace")
    found = PatternRedactor().find(text)
    if not as_json:
        sys.stdout.buffer.write(replace_findings(text, found).text.encode())
        return
    names = Counting()
    names.see(text)
    findings = [
        {
            "kind": one.kind,
            "placeholder": names.name(one.kind, text[one.start : one.end]),
            "line": text.count("\n", 0, one.start) + 1,
            "start": one.start,
            "end": one.end,
        }
        for one in found
    ]
    kinds = dict(Counter(one.kind for one in found).most_common())
    print(json.dumps({"characters": len(text), "kinds": kinds, "findings": findings}))
