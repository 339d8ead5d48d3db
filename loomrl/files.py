"""Files on this machine that are there whole or not at all."""

from pathlib import Path


def is_file(text: str) -> bool:
    """Whether this is the path of a file; text that can be no path at all is none."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def write_whole(file: Path, content: bytes) -> None:
    """Write it in place of what is there; killed in the middle it leaves what was there."""
    draft = file.with_name(f".{file.name}.draft")
    file.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(content)
    draft.replace(file)
