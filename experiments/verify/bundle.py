"""A bundle of evidence: a folder, or one `.tar`, with a manifest of every file's size and SHA-256."""

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loomrl.errors import DataError
from loomrl.files import file_hash, scratch
from loomrl.hub.codec import decode, split
from loomrl.store.policies import Evaluation
from loomrl.store.runs import Run
from loomrl.store.verdicts import StoredVerdict
from loomrl.types import PolicyVersion, Trajectory

FORMAT = 1
MANIFEST = "manifest.json"
RECORD = "record.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]*(/[A-Za-z0-9_.][A-Za-z0-9_.@=+-]*)*")
AGAIN = "Export it again with `loomrl policies export VERSION FOLDER --evidence`."


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """The record of one run of the lineage. Its files are below `runs/RUN`."""

    run: Run
    begun: list[dict[str, Any]]
    """Code, machine and hashes of sources of each start and resume."""
    policies: list[PolicyVersion]
    """From the first one to the one that was used."""
    evaluations: list[Evaluation]
    environments: dict[str, Any]
    """Content of each environment's snapshot."""
    origin: dict[str, str]
    """Hashes of the files of the first weights, if these are a model from elsewhere, which is not in the bundle."""
    checkpoints: list[int]
    leased: dict[str, list[str]]
    """Update → the groups that it learnt from."""
    data: dict[str, str]
    """Settings of `data` → the file that was there."""
    judged: list[int]
    """Versions with the attempts of their evaluation."""


@dataclass(frozen=True, kw_only=True)
class LineageEvidence:
    """The record of a version and its lineage."""

    version: str
    runs: list[RunEvidence]
    """The first one first."""
    verdicts: list[StoredVerdict]


EVIDENCE = TypeAdapter(LineageEvidence)


@dataclass(frozen=True)
class EvidenceBundle:
    """An opened bundle. What it says is not believed yet."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def root(self) -> str:
        """SHA-256 of the manifest, which names every file by hash: compare it with what the maker published."""
        return file_hash(self.folder / MANIFEST)

    @cached_property
    def evidence(self) -> LineageEvidence:
        """The record of the version and its lineage."""
        try:
            return EVIDENCE.validate_json((self.folder / RECORD).read_bytes())
        except (OSError, ValidationError) as error:
            raise DataError(f"{self.folder / RECORD}: {str(error)[:300]}. {AGAIN}") from None

    def damaged(self) -> Iterator[tuple[str, str]]:
        """Files that are not what the manifest says, each with the fault."""
        listed = self.manifest["files"]
        for name, content in listed.items():
            file = self.folder / name
            if not file.is_file():
                yield name, "is missing"
            elif file.stat().st_size != content["size"]:
                yield name, f"has {file.stat().st_size} bytes, the manifest says {content['size']}"
            elif file_hash(file) != content["sha256"]:
                yield name, "has another SHA-256 than the manifest says"
        for name in sorted(files_in(self.folder) - {*listed, MANIFEST}):
            yield name, "is not in the manifest"

    def attempts(self, name: str) -> list[Trajectory]:
        """The trajectories in a file; none if there is no such file."""
        file = self.folder / name
        if not file.is_file():
            return []
        return [decode(payload, origin=name) for payload in split(file.read_bytes(), origin=name)]


def open_bundle(place: Path) -> EvidenceBundle:
    """The bundle at a path; a DataError for what is not one, or names files outside of it."""
    folder = place
    if place.is_file():
        folder = scratch("evidence") / "bundle"
        _unpack(place, folder)
    if not (folder / MANIFEST).is_file():
        raise DataError(f"{place}: no bundle of evidence is there, which has a {MANIFEST}. {AGAIN}")
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise DataError(
            f"{place}: format={manifest.get('format')!r}, and this loomrl reads {FORMAT}. Verify it with the loomrl "
            f"that wrote it ({manifest.get('loomrl', 'unknown')!r:.40}), or export it again."
        )
    listed = manifest.get("files")
    if not isinstance(listed, dict) or RECORD not in listed or not all(map(_is_content, listed.values())):
        raise DataError(f"{place}: {MANIFEST} lists no files with size and sha256. {AGAIN}")
    for name in listed:
        check_name(name, place)
    return EvidenceBundle(folder, manifest)


def seal_bundle(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the manifest of all files in a folder."""
    names = sorted(files_in(folder) - {MANIFEST})
    files = {name: {"size": (folder / name).stat().st_size, "sha256": file_hash(folder / name)} for name in names}
    text = json.dumps({"format": FORMAT, **about, "files": files}, indent=1)
    (folder / MANIFEST).write_text(text)


def pack(folder: Path, archive: Path) -> None:
    """Write a folder as one archive; half-written it has no name."""
    draft = archive.with_name(f".{archive.name}.draft")
    with tarfile.open(draft, "w") as tar:
        for name in sorted(files_in(folder)):
            tar.add(folder / name, arcname=name, filter=_anonymous)
    draft.replace(archive)


def files_in(folder: Path) -> set[str]:
    """The paths of all files below a folder; a DataError for a link."""
    found = set()
    for file in folder.rglob("*"):
        if file.is_symlink():
            raise DataError(f"{file}: a bundle has no links. {AGAIN}")
        if file.is_file():
            found.add(file.relative_to(folder).as_posix())
    return found


def check_name(name: str, place: Path) -> None:
    """A DataError for a name that could lead out of the bundle."""
    if not _NAME.fullmatch(name) or ".." in name.split("/"):
        raise DataError(f"{place}: file name {name!r:.100} leads out of the bundle, or has odd characters. {AGAIN}")


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: {error}. {AGAIN}") from None
    if not isinstance(found, dict):
        raise DataError(f"{file}: a JSON object is needed. {AGAIN}")
    return found


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                check_name(member.name, archive)
                if not member.isfile():
                    raise DataError(f"{archive}: {member.name!r:.100} is no plain file. {AGAIN}")
                tar.extract(member, folder, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{archive}: not a whole archive: {error}. {AGAIN}") from None


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine's user, and no time."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("size"), int) and isinstance(value.get("sha256"), str)
