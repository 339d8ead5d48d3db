"""Bytes and folders by URL: a directory or S3. An artifact is either complete and verified, or absent.

Below the root, artifact `NAME` is `NAME/.files-ATTEMPT/…` and, written last, the marker `NAME/.complete.json` with the
size and SHA-256 of every file. Without a marker an artifact does not exist; with one, every byte read is checked
against it. An artifact never changes: its name can be put again with equal content only. (On S3 that is looked up first
and not enforced by the server: of two writers who race for one name, the later one's artifact holds, whole.)
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal
from urllib.parse import unquote, urlsplit

from pyarrow import fs
from pydantic import TypeAdapter, ValidationError

from loomrl.canonical import canonical_json
from loomrl.errors import ArtifactError, did_you_mean, unknown
from loomrl.files import make_private

SCHEMES = ("file", "s3")
MARKER = ".complete.json"
FILES = ".files-"
CHUNK = 8 << 20
ONLY_FILE = "bytes"
"""The one file of an artifact that is not a folder."""

Kind = Literal["bytes", "folder"]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]*(/[A-Za-z0-9_][A-Za-z0-9_.@=+-]*)*")


@dataclass(frozen=True)
class Content:
    """Size and checksum of a file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Marker:
    """The files of a complete artifact, and the id of the attempt whose folder holds them."""

    kind: Kind
    attempt: str
    files: dict[str, Content]

    def location(self, name: str, file: str) -> str:
        """The path of a file below the root."""
        return f"{name}/{FILES}{self.attempt}/{file}"


_MARKER = TypeAdapter(Marker)


def open_artifacts(url: str, *, make: bool = True) -> "Artifacts":
    """The artifacts in a directory (a path or `file:///DIR`) or in `s3://BUCKET/PREFIX?endpoint_override=HOST:PORT`.

    A missing directory is created, or with `make=False` counts as empty.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ArtifactError(f"artifact_url={url!r}: {error}. Give a folder, or s3://BUCKET/PREFIX.") from None
    if parts.scheme in ("", "file"):
        path = unquote(parts.path) if parts.scheme else url
        return _in_directory(Path(path).expanduser().absolute(), make=make)
    if parts.scheme == "s3":
        return _in_bucket(url)
    raise ArtifactError("artifact_url scheme " + unknown("scheme", parts.scheme, SCHEMES))


def locate(url: str) -> tuple["Artifacts", str]:
    """The store and the name for a URL that `put` returned. Creates no folder."""
    parts = urlsplit(url)
    parent, _, name = parts.path.rstrip("/").rpartition("/")
    return open_artifacts(parts._replace(path=parent or "/").geturl(), make=False), name


class Artifacts:
    """The artifacts below one root. A name is a path such as `runs/math-1/policy-3`."""

    def __init__(self, filesystem: fs.FileSystem, url: str, *, folder: Path | None = None) -> None:
        self.url = url
        self._filesystem = filesystem
        self.folder = folder
        """The root, if it is a directory: there files are fsynced, and the marker cannot be overwritten."""

    def put(self, name: str, data: bytes) -> str:
        """Store bytes durably and return their URL."""
        return self._put(name, "bytes", {ONLY_FILE: data})

    def write_text(self, name: str, text: str) -> str:
        """Write a plain file that people and other programs can open, and return its URL.

        It has no marker, is no artifact, and may be written again; in a directory a reader sees the old or the new one.
        """
        _check_name(name)
        with self._translated(name):
            if self.folder is None:
                self._store(name, text.encode())
            else:
                draft = f"{name}.{secrets.token_hex(4)}.part"
                self._store(draft, text.encode())
                (self.folder / draft).replace(self.folder / name)
        return _url_of(self.url, name)

    def put_folder(self, name: str, folder: Path) -> str:
        """Store every file below `folder` durably and return the artifact's URL. Empty folders are left out."""
        files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        if not files:
            raise ArtifactError(f"artifact {name!r}: {folder} is no folder with files in it. Is the path right?")
        return self._put(name, "folder", files)

    def derive(self, name: str, source: str, changed: Mapping[str, bytes]) -> str:
        """Store a folder that equals `source` but for these files, and return its URL. The other files share their
        bytes by hard links in a directory, and the server copies them on S3; each artifact is deleted by itself.
        """
        marker = self._complete_marker(source, kind="folder")
        files = {file: _Linked(marker.location(source, file), content) for file, content in marker.files.items()}
        return self._put(name, "folder", {**files, **changed})

    def get(self, name: str) -> bytes:
        """The bytes of this artifact."""
        marker = self._complete_marker(name, kind="bytes")
        buffer = BytesIO()
        self._fetch(name, marker, ONLY_FILE, buffer)
        return buffer.getvalue()

    def get_folder(self, name: str, into: Path, *, below: str | tuple[str, ...] = "") -> Path:
        """Copy the folder of this artifact to `into`, a new path: whole or not at all. With `below`, of its files only
        those whose path begins so.
        """
        marker = self._complete_marker(name, kind="folder")
        if into.exists():
            raise ArtifactError(f"artifact {name!r}: {into} exists already. Give a path that is free.")
        staged = into.with_name(f".{into.name}-{secrets.token_hex(4)}")
        try:
            with self._translated(name):
                for file in marker.files:
                    _refuse_elsewhere(name, file)
                    if not file.startswith(below):
                        continue
                    (staged / file).parent.mkdir(parents=True, exist_ok=True)
                    with (staged / file).open("wb") as sink:
                        self._fetch(name, marker, file, sink)
                return staged.rename(into)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def get_file(self, name: str, file: str) -> bytes | None:
        """The bytes of one file of a folder's artifact; None if it has no such file."""
        marker = self._complete_marker(name, kind="folder")
        if file not in marker.files:
            return None
        buffer = BytesIO()
        self._fetch(name, marker, file, buffer)
        return buffer.getvalue()

    def exists(self, name: str) -> bool:
        """True if a complete artifact has this name."""
        return self._marker(name) is not None

    def list_names(self, under: str = "") -> list[str]:
        """The names of all complete artifacts, or of those below a path, sorted."""
        if under:
            _check_name(under)
        with self._translated(under):
            return sorted(self._walk(under))

    def list_begun(self, under: str) -> list[str]:
        """The names directly below a path, of half-written artifacts too, sorted."""
        _check_name(under)
        with self._translated(under):
            return sorted(str(entry.path) for entry in self._entries(under) if entry.type == fs.FileType.Directory)

    def hashes(self, name: str) -> dict[str, str]:
        """The SHA-256 of each file of a complete artifact, as its marker says."""
        return {file: content.sha256 for file, content in self._complete_marker(name).files.items()}

    def url_of(self, name: str) -> str:
        """The URL that an artifact of this name has, or would have."""
        return _url_of(self.url, name)

    def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Remove an artifact, half-written or complete. If killed half-way, the artifact counts as absent."""
        _check_name(name)
        with self._translated(name):
            ours = [entry for entry in self._entries(name) if entry.base_name.startswith((MARKER, FILES))]
            if not ours and not missing_ok:
                raise ArtifactError(self._missing(name))
            for entry in sorted(ours, key=lambda entry: str(entry.base_name)):  # the marker sorts first
                if entry.type == fs.FileType.Directory:
                    self._filesystem.delete_dir(entry.path)
                else:
                    self._filesystem.delete_file(entry.path)
            if self.folder is not None:
                with suppress(OSError):  # artifacts below it stay
                    (self.folder / name).rmdir()

    def _put(self, name: str, kind: Kind, files: Mapping[str, "bytes | Path | _Linked"]) -> str:
        with self._translated(name):
            marker = self._marker(name)
            if marker is None:
                contents, marker = self._write(name, kind, files)
            else:
                contents = {file: _measure(source) for file, source in files.items()}
        if (marker.kind, marker.files) != (kind, contents):
            raise ArtifactError(
                f"artifact {name!r} in {self.url} is stored already with other content: "
                f"{_difference(marker.files, contents)}. Artifacts never change: put it under a new name."
            )
        return _url_of(self.url, name)

    def _write(
        self, name: str, kind: Kind, files: Mapping[str, "bytes | Path | _Linked"]
    ) -> tuple[dict[str, Content], Marker]:
        """The written files, and the marker that now holds: another writer's, if one was faster."""
        ours = Marker(kind, secrets.token_hex(8), {})
        try:
            for file, source in files.items():
                ours.files[file] = self._store(ours.location(name, file), source)
        except BaseException:
            self._discard(name, ours)
            raise
        self._complete(name, ours)  # if this fails it may have worked: our files stay
        holding = self._complete_marker(name)
        if holding != ours:
            self._discard(name, ours)
        return ours.files, holding

    def _discard(self, name: str, marker: Marker) -> None:
        with suppress(OSError):  # they are not believed anyway
            self._filesystem.delete_dir(f"{name}/{FILES}{marker.attempt}")

    def _store(self, path: str, source: "bytes | Path | _Linked") -> Content:
        if self.folder is not None:
            make_private((self.folder / path).parent)
        if isinstance(source, _Linked):
            self._link(source.place, path)
            return source.content
        if self.folder is not None:
            (self.folder / path).touch(mode=0o600)
        with _opened(source) as reader, self._filesystem.open_output_stream(path) as sink:
            content = _copy(reader, sink)
        if self.folder is not None:
            _fsync(self.folder / path)
        return content

    def _link(self, source: str, path: str) -> None:
        if self.folder is not None:
            with suppress(OSError):  # not every filesystem has links
                os.link(self.folder / source, self.folder / path)
                return
        self._filesystem.copy_file(source, path)

    def _complete(self, name: str, marker: Marker) -> None:
        """Write the marker, unless there is one. From here on the artifact is complete."""
        text = canonical_json(asdict(marker))
        if self.folder is None:
            self._store(f"{name}/{MARKER}", text)
            return
        home = self.folder / name
        for below, _, _ in os.walk(home / f"{FILES}{marker.attempt}"):
            _fsync(Path(below))
        draft = f"{name}/{FILES}{marker.attempt}.json"
        self._store(draft, text)
        with suppress(FileExistsError):  # a link, unlike a rename, never replaces
            os.link(self.folder / draft, home / MARKER)
        (self.folder / draft).unlink()
        for folder in (home, *home.parents[: len(PurePosixPath(name).parts)]):
            _fsync(folder)

    def _fetch(self, name: str, marker: Marker, file: str, sink: IO[bytes]) -> None:
        with self._translated(name), self._filesystem.open_input_stream(marker.location(name, file)) as source:
            found = _copy(source, sink)
        if found != marker.files[file]:
            raise ArtifactError(
                f"artifact {name!r} in {self.url} is damaged: {file!r} is {found}, it was stored as "
                f"{marker.files[file]}. Delete it and make it again, or restore it from a copy."
            )

    def _complete_marker(self, name: str, *, kind: Kind | None = None) -> Marker:
        marker = self._marker(name)
        if marker is None:
            with self._translated(name):
                raise ArtifactError(self._missing(name))
        if kind not in (None, marker.kind):
            remedy = "get_folder" if marker.kind == "folder" else "get"
            raise ArtifactError(f"artifact {name!r} is kept as {marker.kind}, not as {kind}: use `{remedy}`.")
        return marker

    def _marker(self, name: str) -> Marker | None:
        _check_name(name)
        try:
            with self._translated(name), self._filesystem.open_input_stream(f"{name}/{MARKER}") as source:
                return _MARKER.validate_json(source.read())
        except ArtifactError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        except ValidationError as error:
            raise ArtifactError(
                f"artifact {name!r} in {self.url}: its marker is damaged ({error.error_count()} faults). "
                "Delete the artifact and make it again."
            ) from None

    def _missing(self, name: str) -> str:
        if any(entry.base_name.startswith(FILES) for entry in self._entries(name)):
            return (
                f"artifact {name!r} in {self.url} is half-written (no {MARKER}): its writer was killed or is still "
                "writing, or the marker was deleted. Wait for it, restore it from a copy, or put it again."
            )
        known = (str(entry.path) for entry in self._entries(name.rpartition("/")[0]))
        return f"artifact {name!r} is not in {self.url}.{did_you_mean(name, known)}"

    def _walk(self, under: str) -> Iterator[str]:
        for entry in self._entries(under):
            if entry.base_name == MARKER:
                yield under
            elif entry.type == fs.FileType.Directory and not entry.base_name.startswith("."):
                yield from self._walk(entry.path)

    def _entries(self, path: str) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self._filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return found

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Translate errors of disk and network."""
        try:
            yield
        except OSError as error:
            full = "Free disk space." if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Is the place reachable?"
            raise ArtifactError(
                f"artifact {name!r} in {self.url}: {error}. {full} Half-written artifacts do not count."
            ) from error


def _in_directory(folder: Path, *, make: bool) -> Artifacts:
    try:
        if make:
            make_private(folder)
    except OSError as error:
        raise ArtifactError(f"artifact_url={str(folder)!r}: {error}. Choose a folder that can be written.") from None
    return Artifacts(fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()), folder.as_uri(), folder=folder)


def _in_bucket(url: str) -> Artifacts:
    if not urlsplit(url).netloc:
        raise ArtifactError(f"artifact_url={url!r} names no bucket. Give s3://BUCKET/PREFIX.")
    if "@" in urlsplit(url).netloc:
        raise ArtifactError(
            "artifact_url holds credentials, and it is recorded with every policy. Leave them out, and set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    try:
        filesystem, root = fs.FileSystem.from_uri(url)
        bucket = root.partition("/")[0]
        found = filesystem.get_file_info(bucket).type
    except (OSError, ValueError) as error:
        raise ArtifactError(f"artifact_url={url!r}: {error}. Are address, bucket and credentials right?") from None
    if found == fs.FileType.NotFound:
        raise ArtifactError(f"artifact_url={url!r}: there is no bucket {bucket!r}. Create it, or choose another.")
    return Artifacts(fs.SubTreeFileSystem(root, filesystem), url)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ArtifactError(
            f"artifact name {name!r}: segments of letters, digits and _.@=+- joined by '/' are needed, none "
            "beginning with a dot or a sign. Example: runs/math-1/policy-3."
        )


def _refuse_elsewhere(name: str, file: str) -> None:
    """A marker may come from a bucket that strangers can write to."""
    if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
        raise ArtifactError(f"artifact {name!r}: its marker names a file outside of it, {file!r}. Delete the artifact.")


def _url_of(root: str, name: str) -> str:
    parts = urlsplit(root)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


@dataclass(frozen=True, slots=True)
class _Linked:
    """A file of another artifact, by its place below the root."""

    place: str
    content: Content


def _opened(source: bytes | Path) -> IO[bytes]:
    return BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _copy(source: Any, sink: Any) -> Content:
    """Copy one stream to another; returns size and checksum."""
    digest = hashlib.sha256()
    size = 0
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        sink.write(chunk)
        size += len(chunk)
    return Content(size, digest.hexdigest())


def _measure(source: bytes | Path | _Linked) -> Content:
    if isinstance(source, _Linked):
        return source.content
    with _opened(source) as reader, Path(os.devnull).open("wb") as nowhere:
        return _copy(reader, nowhere)


def _difference(old: Mapping[str, Content], new: Mapping[str, Content]) -> str:
    files = sorted(file for file in old.keys() | new.keys() if old.get(file) != new.get(file))
    return f"{len(files)} file(s) differ, such as {files[0]!r}" if files else "bytes are no folder"


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
