"""Atomic file writes, and path checks."""

from pathlib import Path


def is_file(text: str) -> bool:
    """True if this is the path of a file; False for text that cannot be a path."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def write_whole(file: Path, content: bytes) -> None:
    """Replace a file atomically; if killed in the middle, the old content remains."""
    draft = file.with_name(f".{file.name}.draft")
    file.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(content)
    draft.replace(file)
