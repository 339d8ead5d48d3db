"""Files on this machine that are there whole or not at all."""

from pathlib import Path


def write_whole(file: Path, content: bytes) -> None:
    """Write it in place of what is there; killed in the middle it leaves what was there."""
    draft = file.with_name(f".{file.name}.draft")
    file.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(content)
    draft.replace(file)
