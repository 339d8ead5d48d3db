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
from loomrl.experiments.verify import verification
from loomrl.experiments.verify.bundle import MANIFEST, open_bundle, pack
from loomrl.experiments.verify.verification import RecordVerification, verify_bundle
from tests.algorithms.language_support import QUIET
from tests.algorithms.test_sft import chats, settings
from tests.command_line import typed, typed_json
from tests.experiments.evidence_support import FORGERS, bundled, copy_of, forge_row, forge_weight, made, seal_again

pytestmark = [pytest.mark.system, QUIET]
TALKATIVE = "tests.algorithms.language_envs:TalkativeEnvironment"
ROWS = {
    "id": "Prompts",
    "settings": {
        "rows": [{"prompt": f"Say {n}.", "answer": str(n)} for n in range(40)],
        "reward": "tests.gym.prompt_rewards:is_right",
        "answer": "answer",
        "max_steps": 1,
    },
}
Forger = Callable[[Path, random.Random], tuple[str, str]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("evidence"), is_judged=True)


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
    assert checked["verdict"] == (8, 8)
    assert {link.link for link in found.links if link.unchecked} == {"verdict"}


def test_a_share_is_drawn_by_its_seed(bundle: Path) -> None:
    first, again = (verified(bundle, 0.05, seed=5) for _ in range(2))
    assert first.holds
    assert [link.checked for link in first.links] == [link.checked for link in again.links]
    assert {link.link: link.checked for link in first.links}["update"] == 1
    assert all(bool(link.how) == bool(link.checked) for link in first.links), "what was not drawn is not called equal"


@pytest.mark.parametrize("forge", FORGERS)
def test_one_change_in_sealed_evidence_is_found_and_its_link_named(bundle: Path, tmp_path: Path, forge: Forger) -> None:
    forged = copy_of(bundle, tmp_path / "forged")
    link, where = forge(forged, random.Random(3))
    seal_again(forged)
    found = verified(forged)
    assert any(one.link == link and where in one.where for one in found.mismatches), found.mismatches
    assert "differs" in {each.how for each in found.links}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_of_a_hundred_forgeries_every_one_is_found_and_its_link_named(bundle: Path, tmp_path: Path) -> None:
    given = settings(tmp_path, chats(12), **{"train.keep": "all", "train.checkpoint_every": 1})
    learnt = bundled(given, tmp_path / "learnt")
    missed = []
    for number in range(100):
        forge = (*FORGERS, forge_row)[number % (len(FORGERS) + 1)]
        of_data = forge is forge_row
        forged = copy_of(learnt if of_data else bundle, tmp_path / "forged")
        link, where = forge(forged, random.Random(number))
        seal_again(forged)
        model = tmp_path / "tiny" if of_data else None
        found = verify_bundle(open_bundle(forged), share=1, seed=number, model=model)
        if not any(one.link == link and where in one.where for one in found.mismatches):
            missed.append((number, forge.__name__, link, where, found.mismatches))
        shutil.rmtree(forged)
    assert not missed


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_of_a_hundred_untouched_bundles_none_raises_an_alarm(tmp_path: Path) -> None:
    several = [
        made(tmp_path / "a", is_judged=True, seed=4),
        made(tmp_path / "b", "ppo", seed=5, **{"algorithm.sampling.top_p": 0.9}),
        made(tmp_path / "c", "rloo", seed=6, **{"algorithm.model.lora": {"rank": 4}}),
        made(tmp_path / "d", seed=7, **{"environments": [{"id": TALKATIVE, "settings": {"max_steps": 3}}]}),
    ]
    found = [verified(several[seed % 4], (0.05, 0.3, 1.0)[seed % 3], seed) for seed in range(100)]
    assert [one.mismatches for one in found if not one.holds] == []


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


@pytest.mark.slow
def test_a_lineage_is_verified_run_by_run_down_to_its_first(tmp_path: Path) -> None:
    """The second run begins with a version of the first one, by another algorithm that learns in several steps."""
    made(tmp_path)
    changes = {"parent": "r/1", "algorithm.model.build": None, "algorithm.optimizer.minibatches": 2}
    shutil.rmtree(tmp_path / "bundle")
    found = verified(made(tmp_path, "ppo", run="s", **changes))
    assert found.holds, found.mismatches
    assert [(link.run, link.checked) for link in found.links if link.link == "update"] == [("r", 1), ("s", 2)]
    assert [(link.run, link.checked) for link in found.links if link.link == "origin"] == [("r", 1), ("s", 1)]


def test_conversations_are_learnt_from_again_and_one_changed_row_is_found(tmp_path: Path) -> None:
    given = settings(tmp_path, chats(12), **{"train.keep": "all", "train.checkpoint_every": 1, "data.held_out": 0.2})
    bundle = bundled(given, tmp_path / "bundle")
    with pytest.raises(ConfigError, match="is not that of the model"):
        verify_bundle(open_bundle(bundle), model=bundle / "model")
    found = verify_bundle(open_bundle(bundle), share=1, model=tmp_path / "tiny")
    assert found.holds, found.mismatches
    assert {link.link: link.checked for link in found.links}["update"] == 3
    file = bundle / "runs/r/data/file.jsonl"
    file.write_text(file.read_text().replace("It is 3.", "It is 4."))
    assert [one.link for one in verified(bundle).mismatches] == ["data rows"]
    seal_again(bundle)
    found = verify_bundle(open_bundle(bundle), share=0.01, model=tmp_path / "tiny")
    assert {one.link for one in found.mismatches} == {"data"}


def test_on_another_processor_weights_may_be_apart_as_far_as_was_measured(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "arithmetic", lambda: {"processor": "another"})
    found = verified(bundle)
    assert found.holds, found.mismatches
    assert "distance" in {link.link: link.how for link in found.links}["update"]
    forged = copy_of(bundle, tmp_path / "forged")
    forge_weight(forged, random.Random(1), by=0.05)
    seal_again(forged)
    assert {one.link for one in verified(forged).mismatches} & {"update", "tokens"}


def test_a_share_beyond_the_whole_is_refused(bundle: Path) -> None:
    for share in (0.0, 1.1, -1.0):
        with pytest.raises(ConfigError, match="a share above 0, at most 1"):
            verified(bundle, share)


def test_the_command_verifies_a_version_on_record_and_an_archive_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path}/loom.db"
    # Each row is drawn once: what one update drew decides what comes in the next, without a checkpoint between them.
    made(tmp_path, **{"environments": [ROWS], "evaluation.levels": None, "train.checkpoint_every": 2})
    archive = typed_json("policies", "export", "r/2", "out.tar", "--evidence", "--store", store)
    shutil.rmtree(tmp_path / "artifacts")
    told = typed_json("verify", "out.tar", "--share", "1")
    assert (told["holds"], told["version"], told["root"]) == (True, "r/2", archive["sha256"])
    with pytest.raises(ConfigError, match="exists already"):
        typed("policies", "export", "r/2", "out.tar", "--evidence", "--store", store)
    with pytest.raises(ConfigError, match=r"away\.tar: no such file"):
        typed("verify", "away.tar")


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
