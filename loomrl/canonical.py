"""One byte form for JSON values, so that equal content has an equal hash on every machine."""

import hashlib
import json
import uuid
from typing import Any


def canonical_json(value: Any) -> bytes:
    """The only JSON text of `value`: sorted keys, no spaces, UTF-8. NaN and infinities are refused with ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def content_hash(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def as_uuid(id: str) -> str:
    """An id as a UUID: itself, if it is one, else always the same one."""
    try:
        return str(uuid.UUID(id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"loomrl:{id}"))
