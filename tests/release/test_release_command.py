"""`loomrl release` as it is typed."""

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from loomrl.errors import LoomError
from loomrl.experiments.cli import app
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint, show_endpoint
from loomrl.store.releases import list_releases
from tests.serving.control_support import control_policy


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A LoomDB with an endpoint, and two exported policies beside it."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/loom.db"
    monkeypatch.setenv("LOOMRL_STORE", url)
    for seed, name in enumerate(("old", "new")):
        control_policy(seed=seed).save(tmp_path / name)
    with open_store(url) as db:
        set_endpoint(db, "cart", [Arm(name="stable", policy=str(tmp_path / "old"))], at=1.0)
    return url


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The JSON of `loomrl release WORDS`."""
    app(["release", *words, "--json"], standalone_mode=False)
    said: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return said


def test_release_begins_is_shown_and_obeys(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ("approvals=[1.0]", "approvers=[ann]")
    begun = typed(capsys, "new", *plan, "--to", "cart", "--no-gate", "a test", "--who", "bob", "--strategy", "canary")
    assert (begun["release"], begun["state"], begun["who"]) == ("cart-1", "open", "bob")
    shown = typed(capsys, "show", "cart", "--picture", "cart.svg")
    assert "new against old: open" in " ".join(ElementTree.parse(tmp_path / "cart.svg").getroot().itertext())
    assert shown["waits"] == ["no replica of the new version is up yet"]
    assert shown["verdict"]["reasons"] == ["no gate, by bob: a test"]
    assert [arm["share"] for arm in shown["arms"]] == [1.0, 0.0]
    with pytest.raises(LoomError, match="'bob' may not approve"):
        typed(capsys, "approve", "cart", "--who", "bob")
    assert typed(capsys, "approve", "cart", "--who", "ann")["reason"] == "approve by ann: 100 %"
    assert typed(capsys, "pause", "cart", "--who", "ann")["state"] == "open"
    app(["release", "show", "cart"], standalone_mode=False)
    assert "waits: paused: pause by ann" in capsys.readouterr().out
    assert typed(capsys, "abort", "cart", "--who", "ann", "--why", "enough")["state"] == "aborted"
    assert [each["state"] for each in typed(capsys, "list")["releases"]] == ["aborted"]
    with open_store(url) as db:
        assert show_endpoint(db, "cart").arms == (Arm(name="stable", policy=str(tmp_path / "old")),)


def test_bad_input_is_named_and_nothing_moves(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (("knew", "--to", "cart", "--no-gate", "x"), "'knew'"),
        (("new", "--to", "card", "--no-gate", "x"), "Did you mean 'cart'"),
        (("old", "--to", "cart", "--no-gate", "x"), "is the stable version"),
        (("new", "--to", "cart", "--no-gate", "x", "--strategy", "canaries"), "strategy='canaries'"),
        (("new", "--to", "cart", "--no-gate", "x", "gards=[]"), "Did you mean 'guards'"),
        (("new", "--to", "cart", "--no-gate", "x", "--suite", "y"), "has no effect"),
        (("new", "--to", "cart", "--no-gate", "--watch"), "say a reason before --watch"),
        (("new", "--to", "cart"), "--suite: a control policy's suite depends"),
        (("new", "--to", "cart", "--suite", "contrl_tiny"), "Did you mean 'control_tiny'"),
    ):
        with pytest.raises(LoomError, match=said):
            typed(capsys, *words)
    shutil.rmtree(tmp_path / "old")
    for how in (("--no-gate", "x"), ("--suite", "control_tiny")):
        with pytest.raises(LoomError, match=r"its stable policy '.*/old' is gone, so .* no way back"):
            typed(capsys, "new", "--to", "cart", *how)
    with open_store(url) as db:
        assert list_releases(db) == []
        assert show_endpoint(db, "cart").revision == 1
