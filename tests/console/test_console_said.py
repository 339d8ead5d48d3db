"""What another version would have said: from the recorded ids, in the console and by a command."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from loomrl.artifacts import open_artifacts
from loomrl.config import Experiment
from loomrl.errors import ConfigError
from loomrl.experiments.train import train
from loomrl.hub import open_hub
from loomrl.inference.chat import ChatTemplate
from loomrl.record import word
from loomrl.serving.continuation import continue_from, find_place, starts_of
from loomrl.store import beside, open_store
from loomrl.types import Tokens, Trajectory
from tests.algorithms.control_support import MARKS
from tests.algorithms.language_support import experiment
from tests.command_line import typed_json
from tests.console.console_support import Browser, console, key
from tests.experiments.test_fork import SHORT

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster"), *MARKS]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Trajectory]:
    """A run of two updates, and an attempt of its first."""
    settings = experiment(tmp_path_factory.mktemp("said"), "grpo", **SHORT | {"train.updates": 2})
    train(settings, run="r")
    with open_hub(beside(settings.store_url, "r"), settings.hub) as hub:
        return settings, next(iter(hub.replay()))[1]


def test_a_version_goes_on_from_recorded_ids_that_are_never_tokenised_again(
    trained: tuple[Experiment, Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy, what it says from its own second token on is the rest of what it said from the first."""
    settings, attempt = trained
    monkeypatch.setattr(ChatTemplate, "encode", None)
    with open_store(settings.store_url) as db:
        first = find_place(attempt, thread=0)
        assert [first.token] == starts_of(attempt, 0)
        whole = continue_from(first, attempt, "r/2", db)
        assert whole.recorded == attempt.turns[0].action
        assert len(whole.ids) == len(whole.logprobs) > 2
        said_T = np.array(whole.ids, np.int32)
        zeros_T = np.zeros(len(said_T), np.float32)
        tokens = Tokens.sampled(first.before_T, said_T, zeros_T, np.full(len(said_T), 2, np.int32))
        turn = replace(attempt.turns[0], action=whole.said, tokens=tokens)
        said = replace(attempt, turns=(turn,))
        later = continue_from(find_place(said, thread=0, token=first.token + 1), said, "r/2", db)
        assert whole.ids[1:] == later.ids[: len(whole.ids) - 1]
        warm = [continue_from(first, attempt, "r/2", db, temperature=1.0, seed=seed).ids for seed in (1, 1, 2)]
        assert warm[0] == warm[1] != warm[2]


def test_places_and_versions_that_cannot_be_asked_are_refused(trained: tuple[Experiment, Trajectory]) -> None:
    settings, attempt = trained
    start = starts_of(attempt, 0)[0]
    for where, said in {
        ("thread", 3): "thread=3: the trajectory has 1",
        ("turn", 2): "turn=2: sampled turns are 1",
        ("token", 0): f"token=0 was not sampled. Answers begin at {start}",
        ("token", 99_999): "token=99999: the thread has tokens 0 to",
    }.items():
        with pytest.raises(ConfigError, match=said):
            find_place(attempt, **{"thread": 0, where[0]: where[1]})
    place = find_place(attempt, thread=0)
    renamed = replace(attempt, turns=(replace(attempt.turns[0], action="something else"),))
    with open_store(settings.store_url) as db:
        with pytest.raises(ConfigError, match="another tokenizer"):
            continue_from(place, renamed, "r/2", db)
        with pytest.raises(ConfigError, match="policy name='nobody' is unknown"):
            continue_from(place, attempt, "nobody", db)
    assert not list(open_artifacts(settings.artifact_url).list_names("runs/nobody"))


@pytest.fixture
def operator(trained: tuple[Experiment, Trajectory]) -> Iterator[Browser]:
    with console(trained[0].store_url) as (_, app), Browser(app) as browser:
        yield browser


def test_the_page_of_a_trajectory_asks_another_version(
    trained: tuple[Experiment, Trajectory], operator: Browser
) -> None:
    settings, attempt = trained
    page = f"/trajectories/{attempt.id}"
    shown = operator.get(page).text
    assert "What would it have said?" in shown
    assert 'value="r/2"' in shown
    start = re.search(r'name="token"[^>]*value="(\d+)"', shown)
    assert start is not None
    asked = {"id": attempt.id, "version": "r/2", "token": start[1], "thread": "0", "temperature": "0"}
    answer = operator.submit("/said", page=page, **asked)
    assert answer.status_code == 200
    with open_store(settings.store_url) as db:
        expected = continue_from(find_place(attempt, thread=0), attempt, "r/2", db)
    columns = re.findall(r'<td><pre class="text" dir="auto">(.*?)</pre></td>', answer.text, re.DOTALL)
    plain = [unescape(re.sub(r"</?mark[^>]*>", "", column)) for column in columns]
    assert plain == [word.visible(text) for text in (expected.recorded, expected.said)]
    for name, wrong, said in (
        ("token", "x", "token='x' is no whole number"),
        ("temperature", "-1", "a number from 0 to 10"),
        ("version", "nobody", "policy name="),
        ("id", "nothing", "no trajectory"),
    ):
        refused = operator.submit("/said", page=page, **asked | {name: wrong})
        assert refused.status_code in (400, 404)
        assert said in unescape(refused.text)


def test_only_operators_may_ask(trained: tuple[Experiment, Trajectory]) -> None:
    settings, attempt = trained
    with console(settings.store_url, is_local=False) as (source, app), Browser(app) as browser:
        plain, _ = key(source, "rate")
        browser.sign_in(plain)
        assert "What would it have said?" not in browser.get(f"/trajectories/{attempt.id}").text
        assert browser.submit("/said", page=f"/trajectories/{attempt.id}", id=attempt.id).status_code == 403


def test_the_command_says_the_same(trained: tuple[Experiment, Trajectory], tmp_path: Path) -> None:
    settings, attempt = trained
    found = typed_json("--store", settings.store_url, "trajectories", "ask", attempt.id, "r/0", "--turn", "1")
    with open_store(settings.store_url) as db:
        assert found["ids"] == continue_from(find_place(attempt, thread=0), attempt, "r/0", db).ids
