"""Evidence of a version: what was made again holds, what one changed is found and named."""

import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from loomrl.errors import ConfigError, DataError
from loomrl.experiments.verify.bundle import MANIFEST, open_bundle, pack
from loomrl.experiments.verify.verification import RecordVerification, verify_bundle
from tests.algorithms.language_support import QUIET
from tests.command_line import typed, typed_json
from tests.experiments.evidence_support import FORGERS, copy_of, made, seal_again

pytestmark = [pytest.mark.system, QUIET]
Forger = Callable[[Path, random.Random], tuple[str, str]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("evidence"))


def verified(bundle: Path, share: float = 1.0, seed: int = 0) -> RecordVerification:
    return verify_bundle(open_bundle(bundle), share=share, seed=seed)


def test_everything_of_a_run_is_made_again_to_the_bit(bundle: Path) -> None:
    found = verified(bundle)
    assert found.holds, found.mismatches
    checked = {link.link: (link.checked, link.of) for link in found.links}
    assert checked["update"] == (2, 2)
    assert checked["origin"] == (1, 1)
    assert checked["evaluation"] == (16, 16)
    assert checked["rewards"][0] == 2 * 8 + 16
    assert not any(link.unchecked for link in found.links)


def test_a_share_is_drawn_by_its_seed(bundle: Path) -> None:
    first, again = (verified(bundle, 0.05, seed=5) for _ in range(2))
    assert first.holds
    assert [link.checked for link in first.links] == [link.checked for link in again.links]
    assert {link.link: link.checked for link in first.links}["update"] == 1


@pytest.mark.parametrize("forge", FORGERS)
def test_one_change_in_sealed_evidence_is_found_and_its_link_named(bundle: Path, tmp_path: Path, forge: Forger) -> None:
    forged = copy_of(bundle, tmp_path / "forged")
    link, where = forge(forged, random.Random(3))
    seal_again(forged)
    found = verified(forged)
    assert any(one.link == link and where in one.where for one in found.mismatches), found.mismatches


@pytest.mark.parametrize(
    ("file", "link"),
    [
        ("runs/r/updates/000001", "tokens and rewards"),
        ("runs/r/checkpoints/000001/state.pt", "update"),
        ("record.json", "settings"),
        ("model/model.safetensors", "weights"),
    ],
)
def test_a_file_that_is_not_the_manifests_is_named_at_any_share(
    bundle: Path, tmp_path: Path, file: str, link: str
) -> None:
    forged = copy_of(bundle, tmp_path / "forged")
    content = bytearray((forged / file).read_bytes())
    content[len(content) // 2] ^= 1
    (forged / file).write_bytes(content)
    assert [(one.link, one.where) for one in verified(forged, 0.01).mismatches] == [(link, file)]
    (forged / file).unlink()
    assert [one.what for one in verified(forged, 0.01).mismatches] == ["is missing"]


def test_the_command_verifies_a_version_on_record_and_an_archive_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path}/loom.db"
    made(tmp_path, **{"train.updates": 1})
    archive = typed_json("policies", "export", "r/1", "out.tar", "--evidence", "--store", store)
    shutil.rmtree(tmp_path / "artifacts")
    told = typed_json("verify", "out.tar", "--share", "1")
    assert (told["holds"], told["version"], told["root"]) == (True, "r/1", archive["sha256"])
    with pytest.raises(ConfigError, match="exists already"):
        typed("policies", "export", "r/1", "out.tar", "--evidence", "--store", store)


def test_evidence_with_a_key_in_it_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="what looks like a key"):
        made(tmp_path, **{"environments": [{"id": "tests.experiments.leaky:LeakyEnvironment"}], "train.updates": 1})


def test_what_is_no_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no bundle of evidence"):
        open_bundle(tmp_path)
    old = copy_of(bundle, tmp_path / "old")
    manifest = json.loads((old / MANIFEST).read_text())
    (old / MANIFEST).write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(DataError, match="format=99"):
        open_bundle(old)
    (old / MANIFEST).write_text(json.dumps({**manifest, "files": {**manifest["files"], "../up": {"size": 1}}}))
    with pytest.raises(DataError, match="lists no files"):
        open_bundle(old)
    (old / MANIFEST).write_text("{")
    with pytest.raises(DataError):
        open_bundle(old)


def test_an_archive_that_is_cut_off_or_leads_out_of_its_folder_is_refused(bundle: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.tar"
    pack(bundle, whole)
    assert open_bundle(whole).root == open_bundle(bundle).root
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(DataError, match="not a whole archive"):
        open_bundle(cut)
    for number, name in enumerate(["../up", "/tmp/up", "a/../../up", "a//b"]):
        archive = tmp_path / f"{number}.tar"
        with tarfile.open(archive, "w") as tar:
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"up"))
        with pytest.raises(DataError, match="leads out"):
            open_bundle(archive)
    assert not (tmp_path.parent / "up").exists()
