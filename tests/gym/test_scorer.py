"""Scoring code that hangs, dies or eats memory takes no caller with it, and turns no fault into a score."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from loomrl.errors import ScorerError
from loomrl.gym.scorer import Scorer

pytestmark = pytest.mark.system

SCORING = """
import os, signal, time
from pathlib import Path

def judge(text, flag=""):
    if text == "hang":
        time.sleep(60)
    if text == "wait":
        time.sleep(0.25)
    if text == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "hang once" and not Path(flag).exists():
        Path(flag).touch()
        time.sleep(60)
    if text == "memory":
        return len(bytearray(8 << 30))
    if text == "raise":
        raise ValueError("no")
    if text == "print":
        print("1.0\\n" * 100, flush=True)
    return 1.0 if text in ("good", "hang once", "print", "wait") else 0.5
"""


@pytest.fixture
def scoring(tmp_path, monkeypatch):
    (tmp_path / "scoring_for_tests.py").write_text(SCORING)
    monkeypatch.syspath_prepend(tmp_path)
    scorers = []

    def make(control=("good",), **options):
        scorers.append(Scorer("scoring_for_tests:judge", control=control, deadline_s=0.05, memory_mb=1024, **options))
        return scorers[-1]

    yield make
    for scorer in scorers:
        scorer.close()


async def test_the_function_answers_and_its_worker_is_kept(scoring):
    scorer = scoring()
    assert [await scorer.score(text) for text in ("good", "half", "raise", "print", "good")] == [
        1.0,
        0.5,
        0.0,
        1.0,
        1.0,
    ]


@pytest.mark.parametrize("text", ["hang", "crash", "memory"])
async def test_what_breaks_every_worker_while_the_control_passes_scores_zero(scoring, text):
    scorer = scoring()
    assert await scorer.score(text) == 0.0
    assert await scorer.score("good") == 1.0


async def test_time_that_a_call_does_not_compute_in_is_the_machines_and_not_its_own(scoring):
    assert await scoring().score("wait") == 1.0


async def test_one_bad_moment_of_the_machine_costs_nothing(scoring, tmp_path):
    assert await scoring().score("hang once", str(tmp_path / "flag")) == 1.0


async def test_where_the_control_fails_too_it_is_an_error_and_no_score(scoring):
    scorer = scoring(control=("hang",))
    with pytest.raises(ScorerError, match="control"):
        await scorer.score("crash")


async def test_a_function_that_is_missing_is_an_error_that_names_it():
    scorer = Scorer("scoring_that_is_not_there:judge", control=("good",))
    with pytest.raises(ScorerError, match="scoring_that_is_not_there"):
        await scorer.score("good")
    scorer.close()


async def test_a_hanging_call_does_not_hold_up_the_event_loop(scoring):
    scorer = scoring()
    await scorer.score("good")
    slow = asyncio.create_task(scorer.score("hang"))
    ticks, start = 0, time.monotonic()
    while time.monotonic() - start < 0.25:
        await asyncio.sleep(0.005)
        ticks += 1
    assert not slow.done()
    assert ticks > 20
    assert await slow == 0.0


async def test_many_callers_share_few_workers_and_each_gets_its_own_answer(scoring):
    scorer = scoring(workers=2)
    texts = ["good", "half"] * 100
    assert await asyncio.gather(*map(scorer.score, texts)) == [1.0, 0.5] * 100


def test_one_scorer_serves_several_event_loops(scoring):
    scorer = scoring()
    assert [asyncio.run(scorer.score("good")) for _ in range(2)] == [1.0, 1.0]


def test_no_process_is_left_behind(scoring):
    scorer = scoring()
    asyncio.run(scorer.score("hang"))
    scorer.close()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    lines = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [line for line in lines if b"scoring_for_tests" in line]
