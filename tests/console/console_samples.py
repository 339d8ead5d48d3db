"""A store with something of everything: what the console's tests look at."""

import asyncio
import json
import math
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from loomrl.artifacts import open_artifacts
from loomrl.config import HubConfig
from loomrl.config.release import ReleasePlan
from loomrl.coordinator.job import TrainingJob, Trigger
from loomrl.experiments.shipped import resolve_any
from loomrl.gym.catalogue import make
from loomrl.gym.episode import Attempt, run_episode
from loomrl.gym.grade import GRADES
from loomrl.gym.policy import ConstantPolicy, OraclePolicy, PolicyFactory
from loomrl.hub import open_hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.load import dump
from loomrl.picture import to_png
from loomrl.release.controller import Controller
from loomrl.release.ledger import ReleaseDraft, begin_release
from loomrl.serving.split import choose_arm
from loomrl.store import LoomDB, open_store
from loomrl.store.ab_tests import AbTest, start_test
from loomrl.store.endpoints import Arm, Role, set_endpoint, show_endpoint
from loomrl.store.events import EVENTS, Event
from loomrl.store.feedback import append_feedback
from loomrl.store.judgements import Judgement, ask
from loomrl.store.keys import create_key
from loomrl.store.observations import Observation, append_observations, unit_hash
from loomrl.store.policies import Evaluation, record_evaluation, record_policy
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, beat
from loomrl.store.rewards import StoredReward, store_rewards
from loomrl.store.runs import Run, RunStatus, finish_run, start_run
from loomrl.store.sessions import Quarantine, record_quarantine
from loomrl.store.trainings import ask as queue
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome, record_verdict
from loomrl.store.view.metrics import append_metrics
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import new_metrics
from loomrl.types import (
    End,
    Failure,
    Feedback,
    Message,
    PolicyVersion,
    Reward,
    Source,
    Steps,
    Task,
    Tokens,
    Trajectory,
    Turn,
    Verdict,
)
from tests.telemetry.reports import judged, returns

ENDPOINT = "support"
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "</pre><style>*{display:none}</style> \x1b[31mred\x1b[0m \u202egnp.exe\u202c \u2066iso\u2069 nul:\x00 "
    "\u200bzero {{7*7}} ${7*7} javascript:alert(1) \ufeff\x07 &lt;b&gt;"
)
"""What must be shown, and must not act."""
PAGES = {
    "runs": "/runs",
    "run": "/runs/math-1?with=math-4",
    "groups": "/runs?group=experiment",
    "runs-compared": "/compare/runs?run=math-1&run=math-4&run=math-5",
    "trajectories": "/trajectories",
    "trajectory": "/trajectories/math-1/task-0/1",
    "long": "/trajectories/long",
    "failed": "/trajectories/failed",
    "served": "/trajectories/session-3",
    "wrong": "/trajectories/wrong",
    "hostile": "/trajectories/hostile",
    "episode": "/trajectories/episode",
    "picture": "/trajectories/picture",
    "siblings": "/siblings?hub=&place=1&other=2",
    "policies": "/policies",
    "policy": "/policies/math-1/20",
    "compare": "/compare?a=math-1/20&b=math-4/40",
    "environments": "/environments",
    "environment": "/environments/Math",
    "sweeps": "/sweeps",
    "sweep": "/sweeps/rates",
    "endpoints": "/endpoints",
    "endpoint": "/endpoints/support",
    "releases": "/releases",
    "release": "/releases/support-1",
    "verdicts": "/verdicts",
    "verdict": "/verdicts/verdict-1",
    "rewards": "/rewards",
    "reward": "/rewards/session-3",
    "data": "/datasets",
    "trainings": "/trainings",
    "training": "/trainings/job-1",
    "tests": "/ab",
    "test": "/ab/tone",
    "monitor": "/monitor",
    "feedback": "/feedback",
    "explore": "/explore",
    "audit": "/audit",
    "keys": "/keys",
}
"""Every page, by the name of its picture."""
NOW = time.time()
HOUR = 3600.0


def new_run(id: str, **changes: Any) -> Run:
    """A run that has just begun."""
    plain = {"name": id, "kind": "train", "experiment": "0" * 64, "resolved": "{}", "code": "3f9a1c2b7d4e"}
    return Run(id=id, **{**plain, "environments": {}, "started_at": time.time(), **changes})


def fill(url: str, *, runs: int = 6, updates: int = 120) -> None:
    """Everything."""
    with open_store(url) as db:
        train(db, runs, updates)
        sweep(db)
        with open_hub(url, HubConfig()) as hub:
            hub.append([*rollouts(), hostile(), long_talk(), control_episode(), with_picture(), failed()])
            hub.append(played())
        served(db, url)
        released(db)
        asked(db)


def train(db: LoomDB, runs: int, updates: int) -> None:
    """Runs of two kinds, with metrics, versions and evaluations."""
    for number in range(runs):
        name = "math" if number % 3 != 2 else "cartpole"
        id, started = f"{name}-{number + 1}", NOW - (runs - number) * HOUR
        words = ["language/math_tiny"] if name == "math" else ["control/cartpole"]
        experiment = resolve_any([*words, f"seed={number}"])
        parent = "math-1/40" if number == 3 else None
        begun = new_run(
            id,
            name=name,
            experiment=experiment.sha256,
            resolved=dump(experiment),
            environments={"Math@1.0.0" if name == "math" else "CartPole-v1@1": f"{number:064x}"},
            started_at=started,
            parent_policy=parent,
        )
        start_run(db, begun)
        for update in range(1, updates + 1):
            step = update if name == "math" else 2048 * update
            append_metrics(db, new_metrics(id, step, metrics(name, number, update, updates)), at=started + 20 * update)
        for version in (0, 20, 40):
            before = None if version == 0 else f"{id}/{version - 20}"
            record_policy(
                db,
                PolicyVersion(
                    id=f"{id}/{version}",
                    number=version,
                    url=f"runs/{id}/{version:06d}",
                    run=id,
                    algorithm="grpo" if name == "math" else "ppo",
                    experiment=experiment.sha256,
                    parent=before or parent,
                    created_at=started + version,
                ),
            )
        for when, mean in (("before", 0.2), ("after", 0.5 + 0.05 * number)):
            record_evaluation(db, evaluation(id, when, mean, started))
        if number < runs - 1:
            status = RunStatus.FAILED if number == 1 else RunStatus.FINISHED
            result = (
                {"error": "LearnerError('out of memory')"}
                if number == 1
                else {"stopped": f"all {updates} updates done", "seconds": 20.0 * updates, **judged_twice(name, number)}
            )
            finish_run(db, id, status=status, finished_at=started + 20 * updates, result=result)


def judged_twice(name: str, number: int) -> dict[str, Any]:
    """What a training records of its first and its last version."""
    if name == "cartpole":
        before, after = (returns(20.0 + number, 30.0), returns(400.0, 480.0))
        return {"comparisons": [{"name": "greedy", "before": before, "after": after}], "samples": []}
    before, after = (judged(right, families=("algebra", "geometry")) for right in (12, 60 + 5 * number))
    wrong = {"text": "Three.", "reward": 0.05, "success": 0.0}
    right = {"text": "3x = 6, so x = 2.\n<answer>2</answer>", "reward": 1.05, "success": 1.0}
    pair = {"task": "Math/algebra, level 3", "prompt": "3x + 6 = 12. What is x?", "before": wrong, "after": right}
    return {
        "comparisons": [{"name": way, "before": before, "after": after} for way in ("greedy", "sampled")],
        "samples": [pair, pair | {"before": None, "after": {"text": HOSTILE, "reward": 0.5, "success": 0.5}}],
    }


def metrics(name: str, number: int, update: int, updates: int) -> dict[str, float]:
    """What an update may look like."""
    rng = random.Random(f"{number}-{update}")
    grown = 1 - math.exp(-3 * update / updates)
    noise = rng.gauss(0, 0.04)
    if name == "cartpole":
        return {
            Metric.RETURN: 20 + 450 * grown + 300 * noise,
            Metric.POLICY_ENTROPY: 0.68 - 0.3 * grown,
            Metric.VALUE_LOSS: 3 - 2 * grown + noise,
            Metric.GRADIENT_NORM: 2 + noise,
            Metric.ENV_STEPS_PER_S: 9000 + 5000 * noise,
        }
    return {
        Metric.SUCCESS: min(1.0, max(0.0, 0.15 + (0.5 + 0.05 * number) * grown + noise)),
        Metric.SUCCESS.of("Math/algebra.linear"): min(1.0, max(0.0, 0.2 + 0.6 * grown + noise)),
        Metric.LEVEL: 1 + 3 * grown,
        Metric.REWARD_TOTAL: 0.2 + 0.7 * grown + noise,
        Metric.REWARD_PART.of("correctness"): 0.15 + 0.6 * grown + noise,
        Metric.REWARD_PART.of("format"): 0.05 + 0.1 * grown,
        Metric.POLICY_LOSS: -0.01 - noise / 10,
        Metric.POLICY_KL: 0.08 * grown + abs(noise) / 20,
        Metric.POLICY_ENTROPY: 2.2 - 1.4 * grown + noise,
        Metric.GRADIENT_NORM: 0.6 + noise,
        Metric.LENGTH_ACTION: 60 + 80 * grown + 100 * noise,
        Metric.ENGINE_TOKENS_PER_S: 1500 + 800 * noise,
        Metric.TIME_ROLLOUT: 10.0 + noise,
        Metric.TIME_LEARN: 8.0 - noise,
        Metric.FAILURES: float(rng.random() < 0.05),
    }


def evaluation(run: str, when: str, mean: float, at: float) -> Evaluation:
    """A report with an interval."""
    success = {"mean": mean, "low": mean - 0.08, "high": mean + 0.07, "count": 200}
    report = {
        "policy": run,
        "overall": {"success": success, "failures": 0},
        "by_family": {"Math/algebra": {"success": success}},
    }
    version = f"{run}/{0 if when == 'before' else 40}"
    return Evaluation(id=f"{run}-{when}", report=report, created_at=at + 60, run=run, policy=version)


def sweep(db: LoomDB) -> None:
    """A sweep that has ended."""
    rng = random.Random(4)
    trials = []
    experiment = resolve_any(["language/math_tiny"])
    resolved = f"kind: sweep\nname: rates\nmetric: success\nspace: {{}}\nexperiment: {json.dumps(experiment.plain)}\n"
    start_run(db, new_run("rates", kind="sweep", resolved=resolved, started_at=NOW - 20 * HOUR))
    for number in range(24):
        rate, size = 10 ** rng.uniform(-6, -4), rng.choice([4, 8, 16])
        score = max(0.0, 0.8 - 0.25 * abs(math.log10(rate) + 5) + 0.01 * size + rng.gauss(0, 0.02))
        trials.append(
            {
                "run": f"rates-{number}",
                "changes": {
                    "algorithm.optimizer.learning_rate": rate,
                    "rollout.group_size": size,
                    "algorithm.kl": rng.choice([0.0, 0.01, 0.05]),
                },
                "score": score,
                "stopped": "done",
            }
        )
    result = {"metric": "success", "mode": "max", "trials": trials}
    finish_run(db, "rates", status=RunStatus.FINISHED, finished_at=NOW - 18 * HOUR, result=result)


@cache
def tokenizer() -> Tokenizer:
    """A byte-level tokenizer of few tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    texts = [
        f"3x + 6 = {number}. What is x? Take 6 from both sides, then divide by three. <answer>{number}</answer>"
        for number in range(99)
    ]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False))
    return made


def tokens(text: str, *, prompt: str, version: int, seed: int = 0) -> Tokens:
    """Tokens of a text, sampled with made-up probabilities, behind those of a prompt."""
    rng = np.random.default_rng(seed)
    before, ids = tokenizer().encode(prompt).ids, tokenizer().encode(text).ids
    mask = np.array([False] * len(before) + [True] * len(ids))
    logprobs = np.where(mask, -rng.exponential(0.7, len(mask)), 0).astype(np.float32)
    versions = np.where(mask, version, -1).astype(np.int32)
    entropies = np.where(mask, rng.exponential(0.7, len(mask)), 0).astype(np.float32)
    return Tokens(np.array([*before, *ids], np.int32), mask, logprobs, versions, entropies)


def keep_tokenizer(folder: Path) -> None:
    """A checkpoint of `math-1/40` with nothing in it but its tokenizer."""
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "model" / "tokenizer.json"
        file.parent.mkdir()
        file.write_text(tokenizer().to_str())
        open_artifacts(str(folder / "artifacts")).put_folder("runs/math-1/000040", Path(made))


def talk(id: str, turns: tuple[Turn, ...], **changes: object) -> Trajectory:
    """A trajectory of turns."""
    made = Trajectory(
        id=id,
        task=Task("Math", "1.0.0", "algebra.linear", 3, 7, {"terms": 3}),
        turns=turns,
        end=End.TERMINATED,
        reward=Reward(1.1, {"correctness": 1.0, "format": 0.1}, 1.0),
        group=f"group of {id}",
        run="math-1",
        first_version=12,
        last_version=12,
        started_at=NOW - 100,
        finished_at=NOW - 97,
    )
    return replace(made, **changes)


def rollouts() -> list[Trajectory]:
    """Groups of attempts at sums and with a tool."""
    found = []
    for task in range(6):
        for number in range(4):
            right = (task + number) % 3 != 0
            said = 2 + task if right else 5 + task
            answer = f"3x = {12 + task} - 6, so x = {said}.\n<answer>{said}</answer>"
            thought = "<think>Take 6 from both sides, then divide by three.</think>\n" + answer
            reward = Reward(1.1 if right else 0.1, {"correctness": float(right), "format": 0.1}, float(right))
            first = (
                Message("system", "You solve equations. Put the result into <answer> tags."),
                Message("user", f"3x + 6 = {12 + 3 * task}. What is x?"),
            )
            call = '<tool_call>{"name": "calculate", "arguments": {"expression": "(12-6)/3"}}</tool_call>'
            turns = (
                Turn(first, call, Reward(), tokens(call, prompt=first[1].content, version=12, seed=task)),
                Turn(
                    (Message("tool", '{"result": 2.0}'),),
                    thought,
                    reward,
                    tokens(thought, prompt='{"result": 2.0}', version=12 + number % 2, seed=number),
                ),
            )
            found.append(
                talk(
                    f"math-1/task-{task}/{number}",
                    turns,
                    reward=reward,
                    group=f"math-1/task-{task}",
                    group_size=4,
                    task=Task("Math", "1.0.0", "algebra.linear", 1 + task, 7 + task, {"terms": 3}),
                    last_version=13,
                )
            )
    return found


def hostile() -> Trajectory:
    """Everything that a policy might say to whoever looks."""
    said = Turn((Message("user", HOSTILE), Message("tool", HOSTILE)), HOSTILE + "\n" + HOSTILE, Reward(0.0, {}, 0.0))
    failure = Failure("environment", "ValueError", HOSTILE.replace("\x00", ""))
    task = Task("Math", "1.0.0", "<b>family</b>\u202e", 1, 7, {"p": HOSTILE})
    return talk(
        "hostile",
        (said,),
        task=task,
        end=End.FAILED,
        failure=failure,
        reward=Reward(0.0, {}, 0.0),
        extra={"memory": HOSTILE},
    )


def long_talk(count: int = 100_000) -> Trajectory:
    """A trajectory of 100,000 tokens in 50 turns, and one thread beside."""
    per = count // 50
    words = "The quick brown fox jumps over the lazy dog and thinks about reinforcement learning. "
    turns = []
    for number in range(50):
        prompt = f"Go on, part {number + 1}."
        made = tokens(
            f"Step {number}. " + words * (per // len(tokenizer().encode(words)) + 1),
            prompt=prompt,
            version=number // 10,
        )
        kept = Tokens(*(column[:per] for column in made.arrays()))
        text = tokenizer().decode([int(id) for id in kept.ids_T[kept.mask_T]])
        turns.append(Turn((Message("user", prompt),), text, Reward(), kept))
    aside = Turn(
        (Message("user", "Check it."),), "It is right.", Reward(), tokens("It is right.", prompt="Go", version=3)
    )
    return talk("long", tuple(turns), threads=((aside,),), first_version=0, last_version=4)


def control_episode(steps: int = 400) -> Trajectory:
    """An episode of a control policy."""
    at = np.arange(steps)
    seen = np.stack([np.sin(at / 20), np.cos(at / 17) / 2, np.sin(at / 5) / 5, np.cos(at / 9)], 1).astype(np.float32)
    acted = Steps(
        observations=seen,
        actions=(np.sin(at / 3) > 0).astype(np.int64),
        logprobs_T=np.full(steps, -0.6, np.float32),
        sampled_T=np.ones(steps, np.bool_),
        versions_T=np.full(steps, 40, np.int32),
        lanes_T=np.zeros(steps, np.int32),
        times_T=NOW + at / 50,
    )
    return talk(
        "episode",
        (),
        task=Task("CartPole-v1", "1", "default", 0, 3),
        steps=acted,
        run="cartpole-3",
        reward=Reward(400.0, {}, 1.0),
        source=Source.EVALUATION,
    )


def with_picture() -> Trajectory:
    """A question about a picture."""
    image = np.zeros((48, 64, 3), np.uint8)
    image[8:40, 12:52] = (42, 120, 214)
    asked_of = Turn(
        (Message("user", "Which colour is the box?", (to_png(image),)),), "<answer>blue</answer>", Reward(1.0, {}, 1.0)
    )
    return talk("picture", (asked_of,), task=Task("Multimodal", "1.0.0", "colour", 1, 5))


def played() -> list[Trajectory]:
    """Attempts at a task of a real environment, one right and one wrong."""

    async def play(id: str, policy: PolicyFactory) -> Trajectory:
        environment = make("Math")
        task = environment.task("algebra.linear", 2, 7)
        return await run_episode(
            environment, policy(environment, random.Random(0)), Attempt(id=id, group=id, task=task)
        )

    async def both() -> list[Trajectory]:
        wrong = await play("wrong", ConstantPolicy)
        grade = {"judge": "m", "score": 0.0, "reasons": {"rank 2 of 2, shown 1.": "It answers <another> question."}}
        wrong = replace(wrong, extra={**wrong.extra, GRADES: {"rank": grade}})
        return [await play("right", OraclePolicy), wrong]

    with ThreadPoolExecutor(1) as thread:  # Playwright has this one's event loop
        return thread.submit(asyncio.run, both()).result()


def failed() -> Trajectory:
    """An attempt that failed."""
    return talk(
        "failed", (), end=End.FAILED, failure=Failure("sandbox", "Timeout", "no answer in 10 s"), reward=Reward()
    )


def served(db: LoomDB, url: str) -> None:
    """An endpoint with sessions, feedback, hits of the monitor and sessions in quarantine."""
    set_endpoint(db, ENDPOINT, [Arm(name="stable", policy="math-1/20")], at=NOW - 5 * HOUR, reason="first version")
    with open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub:
        hub.append(
            [
                talk(
                    f"session-{number}",
                    (Turn((Message("user", f"Where is my order {number}?"),), "It arrives on Monday.", Reward()),),
                    source=Source.PRODUCTION,
                    run="",
                    task=Task("support", "1", "chat", 0, 0),
                    reward=Reward(),
                )
                for number in range(12)
            ]
        )
    score = {"value": 1.0, "normalized": 1.0, "weight": 0.4}
    parts = {"success": {**score, "source": "outcome", "reasoning": "It said so.", "evidence": {"id": "f-3"}}}
    reward = StoredReward(
        id="reward-1",
        trajectory="session-3",
        endpoint=ENDPOINT,
        task="chat",
        total=0.8,
        confidence=0.4,
        content={"components": parts},
        created_at=NOW,
    )
    store_rewards(db, [reward])
    queued(db)
    append_feedback(
        db,
        [
            Feedback(
                id=f"f-{number}",
                trajectory=f"session-{number}",
                source="human",
                kind="thumb",
                value=float(number % 2),
                comment=HOSTILE.replace("\x00", "") if number == 2 else "Thanks!",
                created_at=NOW - 600 + number,
            )
            for number in range(6)
        ],
    )
    create_key(db, "the shop's backend", scopes=("act", "feedback", "record"), expires_at=NOW + 1000 * HOUR, at=NOW)
    record_quarantine(db, Quarantine(endpoint=ENDPOINT, session="session-9", held=True, rule="no_cards", at=NOW - 300))
    hit = {
        "arm": "stable",
        "version": "math-1/20",
        "rule": "no_cards",
        "what": "output",
        "then": "quarantine",
        "count": 3,
        "sessions": ["session-9"],
    }
    EVENTS.append(db, [Event(kind="monitor.hit", subject=ENDPOINT, data=hit, created_at=NOW - 300)])


def queued(db: LoomDB) -> None:
    """A training of the loop that waits."""
    asked_at = {"asked_at": NOW, "at": NOW, "since": NOW}
    job = TrainingJob(id="job-1", endpoint=ENDPOINT, trigger=Trigger.HAND, reason="by ann", who="ann", **asked_at)
    queue(db, job.row(), [])


PLAN = {
    "strategy": "canary",
    "steps": [{"share": share, "minutes": 0.0, "units": 50} for share in (0.1, 0.5)]
    + [{"share": 1.0, "minutes": 0.0, "units": 0}],
    "guards": [
        {"metric": "error", "better": "lower", "margin": 0.2, "waits": "always"},
        {"metric": "reward", "better": "higher", "margin": 0.1},
    ],
    "approvals": [0.5],
    "approvers": ["ann", "open"],
}


def released_verdict(db: LoomDB) -> None:
    """A verdict that waits for Ann."""
    report = {
        "checks": [
            {"name": "improvement", "state": "passed", "evidence": "success 0.61 against 0.52"},
            {"name": "safety", "state": "passed", "evidence": "0 of 200 break no_cards"},
        ],
        "approvers": ["ann"],
        "strategy": {"name": "canary", "share": 0.1},
        "improvement": 0.09,
    }
    record_verdict(
        db,
        StoredVerdict(
            id="verdict-1",
            policy="math-1/40",
            fingerprint="",
            against="math-1/20",
            suite="language@1",
            suite_hash="7" * 64,
            outcome=VerdictOutcome.WAITING,
            report=report,
            created_at=NOW - 3 * HOUR,
        ),
    )


def released(db: LoomDB) -> None:
    """A verdict that waits, and a release that is under way."""
    released_verdict(db)
    allowed = Verdict(True, ("verdict verdict-1",))
    plan = ReleasePlan.parse(PLAN)
    draft = ReleaseDraft(endpoint=ENDPOINT, challenger="math-1/40", plan=plan, verdict=allowed, who="ann", why="better")
    begin_release(db, draft, at=NOW - 2 * HOUR)
    about = {"role": ReplicaRole.POLICY, "policy": "math-1/40", "endpoint": ENDPOINT, "address": "127.0.0.1:1"}
    beat(db, Replica(id="r", node="n", pid=1, state=ReplicaState.READY, **about))
    Controller(db, ENDPOINT).tick()
    traffic(db, 600)


def traffic(db: LoomDB, units: int) -> None:
    """Outcomes of calls over the last hour."""
    endpoint, rng, rows = show_endpoint(db, ENDPOINT), random.Random(5), []
    for number in range(units):
        name = f"unit-{number}"
        arm = choose_arm(ENDPOINT, endpoint.arms, name)
        assert arm is not None
        at = NOW - HOUR + number * HOUR / units
        better = arm.role is not Role.STABLE
        for metric, value in (
            ("error", float(rng.random() < (0.02 if better else 0.05))),
            ("reward", min(1.0, max(0.0, rng.gauss(0.7 if better else 0.6, 0.2)))),
        ):
            rows.append(
                Observation(
                    revision=endpoint.revision, arm=arm.name, unit=unit_hash(name), metric=metric, value=value, at=at
                )
            )
    append_observations(db, ENDPOINT, "gateway", rows, NOW)


def asked(db: LoomDB) -> None:
    """Questions that environments ask people, an A/B test on another endpoint."""
    for number in range(2):
        ask(
            db,
            Judgement(
                id=f"question-{number}",
                question="Is the answer polite?",
                choices=("no", "partly", "yes"),
                conversation=(
                    Message("user", "Can you help?"),
                    Message("assistant", HOSTILE.replace("\x00", "") if number else "Gladly!"),
                ),
                created_at=NOW,
                expires_at=NOW + HOUR,
            ),
        )
    set_endpoint(db, "search", [Arm(name="stable", policy="math-1/20")], at=NOW - HOUR)
    start_test(
        db,
        AbTest(
            name="tone",
            endpoint="search",
            layer="default",
            end=1.0,
            shares={"stable": 0.5, "warm": 0.5},
            metric="success",
            better="higher",
            started_at=NOW - HOUR,
        ),
        [Arm(name="warm", policy="math-1/40", share=0.5)],
    )


def url_in(folder: Path) -> str:
    """A filled store in a folder."""
    url = f"sqlite:///{folder}/loom.db"
    fill(url)
    keep_tokenizer(folder)
    return url
