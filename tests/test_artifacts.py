import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from loomrl.artifacts import FILES, MARKER, Artifacts, locate, open_artifacts
from loomrl.errors import ArtifactError

pytestmark = pytest.mark.system

_buckets = count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """`HOST:PORT` of an S3 server of our own."""
    moto = pytest.importorskip("moto.server", reason="needs an S3 server: pip install 'moto[s3]' flask flask-cors")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield ":".join(map(str, server.get_host_and_port()))
    server.stop()


@pytest.fixture
def s3_url(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    bucket = f"bucket-{next(_buckets)}"
    httpx.put(f"http://{s3_server}/{bucket}").raise_for_status()
    return f"s3://{bucket}/some/prefix?scheme=http&endpoint_override={s3_server}"


@pytest.fixture(params=["directory", "s3"])
def artifact_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return f"file://{tmp_path}/artifacts"
    url: str = request.getfixturevalue("s3_url")
    return url


@pytest.fixture
def artifacts(artifact_url: str) -> Artifacts:
    return open_artifacts(artifact_url)


@pytest.fixture
def overwrite(artifact_url: str, request: pytest.FixtureRequest) -> Callable[[str, bytes], None]:
    """Damage a stored file, past Artifacts."""
    filesystem, root = fs.FileSystem.from_uri(artifact_url)

    def _overwrite(path: str, data: bytes) -> None:
        with filesystem.open_output_stream(f"{root}/{path}") as sink:
            sink.write(data)

    return _overwrite


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a sub-folder."""
    folder = tmp_path / "model"
    (folder / "shards").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "shards" / "0.bin").write_bytes(os.urandom(100_000))
    (folder / ".complete.json").write_text("a file that looks like a marker")
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def attempt_of(artifacts: Artifacts, name: str) -> str:
    marker = artifacts._marker(name)
    return f"{name}/{FILES}{marker.attempt}"


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=2000))
def test_bytes_come_back_as_they_were_put(artifacts: Artifacts, data: bytes) -> None:
    name = f"runs/r{len(artifacts.list_names())}"
    artifacts.put(name, data)
    assert artifacts.get(name) == data


def test_a_folder_comes_back_as_it_was_put(artifacts: Artifacts, model: Path, tmp_path: Path) -> None:
    artifacts.put_folder("policy-1", model)
    copied = artifacts.get_folder("policy-1", tmp_path / "copy")
    assert files_of(copied) == files_of(model)


def test_names_are_listed_and_files_inside_artifacts_are_not(artifacts: Artifacts, model: Path) -> None:
    artifacts.put("b", b"1")
    artifacts.put("a/x", b"2")
    artifacts.put_folder("a", model)
    assert artifacts.list_names() == ["a", "a/x", "b"]
    assert artifacts.list_names("a") == ["a", "a/x"]
    assert artifacts.list_names("nowhere") == []


def test_putting_the_same_again_changes_nothing_and_its_url_leads_back_to_it(artifacts: Artifacts, model: Path) -> None:
    url = artifacts.put("x", b"1")
    assert artifacts.put("x", b"1") == url
    there, name = locate(url)
    assert there.get(name) == b"1"
    artifacts.put_folder("y", model)
    before = attempt_of(artifacts, "y")
    artifacts.put_folder("y", model)
    assert attempt_of(artifacts, "y") == before


def test_a_name_is_never_given_other_content(artifacts: Artifacts, model: Path) -> None:
    artifacts.put("x", b"1")
    with pytest.raises(ArtifactError, match=r"'x'.*other content.*new name"):
        artifacts.put("x", b"2")
    with pytest.raises(ArtifactError, match="other content"):
        artifacts.put_folder("x", model)
    assert artifacts.get("x") == b"1"
    artifacts.put_folder("y", model)
    (model / "config.json").write_text("{ }")
    with pytest.raises(ArtifactError, match=r"such as 'config\.json'"):
        artifacts.put_folder("y", model)


def test_an_artifact_that_is_not_there_names_the_nearest(artifacts: Artifacts) -> None:
    artifacts.put("runs/policy-1", b"1")
    assert not artifacts.exists("runs/policy-2")
    with pytest.raises(ArtifactError, match="Did you mean 'runs/policy-1'"):
        artifacts.get("runs/polisy-1")


def test_a_half_written_artifact_is_not_believed(
    artifacts: Artifacts, overwrite: Callable[[str, bytes], None], artifact_url: str
) -> None:
    artifacts.put("x", b"whole")
    attempt = attempt_of(artifacts, "x")
    artifacts.delete("x")
    if artifact_url.startswith("file:"):
        Path(artifact_url.removeprefix("file://"), attempt).mkdir(parents=True)
    overwrite(f"{attempt}/bytes", b"who")
    artifacts.put("runs/r/1", b"whole")
    if artifact_url.startswith("file:"):
        Path(artifact_url.removeprefix("file://"), f"runs/r/2/{FILES}0").mkdir(parents=True)
    overwrite(f"runs/r/2/{FILES}0/bytes", b"ha")
    assert artifacts.list_begun("runs/r") == ["runs/r/1", "runs/r/2"]
    assert artifacts.hashes("runs/r/1").keys() == {"bytes"}
    artifacts.delete("runs/r/2")
    artifacts.delete("runs/r/1")
    assert not artifacts.exists("x")
    assert artifacts.list_names() == []
    with pytest.raises(ArtifactError, match=r"'x'.*half-written"):
        artifacts.get("x")
    artifacts.put("x", b"whole again")
    assert artifacts.get("x") == b"whole again"


def test_damage_is_found_when_it_is_read(
    artifacts: Artifacts, overwrite: Callable[[str, bytes], None], model: Path, tmp_path: Path
) -> None:
    artifacts.put("x", b"weights")
    overwrite(f"{attempt_of(artifacts, 'x')}/bytes", b"weighty")
    with pytest.raises(ArtifactError, match=r"'x'.*damaged.*bytes"):
        artifacts.get("x")
    artifacts.put_folder("y", model)
    overwrite(f"{attempt_of(artifacts, 'y')}/shards/0.bin", b"")
    with pytest.raises(ArtifactError, match=r"shards/0\.bin"):
        artifacts.get_folder("y", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".copy*"))


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('{"kind": "bytes"', "marker is damaged"),
        ('{"kind": "folder", "attempt": "a", "files": {"../../../etc/passwd": {"size": 1, "sha256": ""}}}', "outside"),
    ],
)
def test_a_marker_that_is_damaged_or_names_files_elsewhere_is_not_believed(
    artifacts: Artifacts, overwrite: Callable[[str, bytes], None], tmp_path: Path, marker: str, said: str
) -> None:
    artifacts.put("x", b"1")
    overwrite(f"x/{MARKER}", marker.encode())
    with pytest.raises(ArtifactError, match=said):
        artifacts.get_folder("x", tmp_path / "copy")


def test_deleted_artifacts_are_gone_and_their_neighbours_stay(artifacts: Artifacts, model: Path) -> None:
    artifacts.put_folder("a", model)
    artifacts.put("a/x", b"1")
    artifacts.delete("a")
    assert artifacts.list_names() == ["a/x"]
    with pytest.raises(ArtifactError, match="'a' is not in"):
        artifacts.delete("a")
    artifacts.put("a", b"new life")
    assert artifacts.get("a") == b"new life"
    artifacts.delete("a/x")
    assert artifacts.folder is None or not (artifacts.folder / "a/x").exists()


def test_bytes_and_folders_are_not_mixed_up_and_nothing_is_copied_over(
    artifacts: Artifacts, model: Path, tmp_path: Path
) -> None:
    artifacts.put_folder("f", model)
    artifacts.put("b", b"1")
    for attempt, said in (
        (lambda: artifacts.get("f"), "use `get_folder`"),
        (lambda: artifacts.get_folder("b", tmp_path / "copy"), "use `get`"),
        (lambda: artifacts.get_folder("f", model), "exists already"),
        (lambda: artifacts.put_folder("g", tmp_path / "nowhere"), "no folder with files"),
    ):
        with pytest.raises(ArtifactError, match=said):
            attempt()


@pytest.mark.parametrize("name", ["", "/x", "x/", "a//b", "../x", "a/.hidden", "a?b", "a b", "a\\b", "-x"])
def test_a_name_that_would_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    artifacts = open_artifacts(str(tmp_path))
    for attempt in (lambda: artifacts.put(name, b"1"), lambda: artifacts.get(name), lambda: artifacts.delete(name)):
        with pytest.raises(ArtifactError, match="segments"):
            attempt()


def test_a_fault_after_the_marker_leaves_the_artifact_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = open_artifacts(str(tmp_path / "artifacts"))

    def fail_on_home(path: Path) -> None:
        if path.name == "x":
            raise OSError("the disk went away")

    monkeypatch.setattr("loomrl.artifacts._fsync", fail_on_home)
    with pytest.raises(ArtifactError, match="went away"):
        artifacts.put("x", b"1")
    assert artifacts.get("x") == b"1"


def test_of_writers_who_race_one_content_holds_whole(tmp_path: Path) -> None:
    def put(number: int) -> bool:
        try:
            open_artifacts(str(tmp_path / "artifacts")).put("x", bytes([number]) * 50_000)
        except ArtifactError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = [number for number, held in enumerate(threads.map(put, range(8))) if held]
    assert len(won) == 1
    assert open_artifacts(str(tmp_path / "artifacts")).get("x") == bytes(won) * 50_000
    assert len(list((tmp_path / "artifacts" / "x").iterdir())) == 2


PUT_FOREVER = """
import sys
from pathlib import Path
from loomrl.artifacts import open_artifacts
artifacts = open_artifacts(sys.argv[1])
for n in range(10_000):
    artifacts.put_folder(f"p{n}", Path(sys.argv[2]))
    print(n, flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.004])
def test_a_writer_killed_while_putting_leaves_nothing_that_is_believed(
    artifact_url: str, model: Path, tmp_path: Path, delay_s: float
) -> None:
    for number in range(5):
        (model / f"{number}.bin").write_bytes(b"x" * 10_000)
    command = [sys.executable, "-c", PUT_FOREVER, artifact_url, str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        finished = int(writer.stdout.readline())
        time.sleep(delay_s)
        os.kill(writer.pid, signal.SIGKILL)
        finished = max([finished, *map(int, writer.stdout.read().split())])
    artifacts = open_artifacts(artifact_url)
    names = artifacts.list_names()
    assert {f"p{n}" for n in range(finished + 1)} <= set(names)
    for name in names:
        assert files_of(artifacts.get_folder(name, tmp_path / f"copy-{name}")) == files_of(model)
    artifacts.put_folder(f"p{finished + 1}", model)


def test_a_write_that_fails_half_way_gives_its_space_back(tmp_path: Path) -> None:
    artifacts = open_artifacts(str(tmp_path / "artifacts"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(ArtifactError, match="Half-written artifacts do not count"):
            artifacts.put("x", b"x" * (2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert artifacts.list_names() == []
    assert not any(path.is_file() for path in (tmp_path / "artifacts").rglob("*"))
    artifacts.put("x", b"x" * (2 << 20))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gs://bucket/x", "Known: file, s3"),
        ("s3://key:secret@bucket/x", "AWS_ACCESS_KEY_ID"),
        ("s3://bucket/x?bogus=1", "bogus"),
        ("/proc/nowhere/x", "folder that can be written"),
    ],
)
def test_an_address_that_cannot_work_is_refused(url: str, said: str) -> None:
    with pytest.raises(ArtifactError, match=said) as refusal:
        open_artifacts(url)
    assert "key:secret" not in str(refusal.value)


def test_plain_text_is_a_file_that_anybody_can_open_and_that_may_change(
    artifacts: Artifacts, artifact_url: str
) -> None:
    filesystem, root = fs.FileSystem.from_uri(artifact_url)
    for text in ("# Monday\n", "# Monday, again\n"):
        url = artifacts.write_text("reports/policy/day.md", text)
        with filesystem.open_input_stream(f"{root}/reports/policy/day.md") as source:
            assert source.read().decode() == text
    assert url.endswith("/reports/policy/day.md") or "/reports/policy/day.md?" in url
    assert artifacts.list_names() == []
    names = [entry.base_name for entry in filesystem.get_file_info(fs.FileSelector(f"{root}/reports/policy"))]
    assert names == ["day.md"]


def test_the_address_of_a_server_may_be_in_the_environment(
    s3_url: str, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_server}")
    plain = s3_url.partition("?")[0]
    assert open_artifacts(plain).put("x", b"1") == f"{plain}/x"
    assert open_artifacts(s3_url).get("x") == b"1"


def test_a_bucket_that_is_not_there_is_named(s3_url: str) -> None:
    with pytest.raises(ArtifactError, match="no bucket 'nowhere'"):
        open_artifacts(s3_url.replace("bucket-", "nowhere/", 1))
