"""Training by remote hand over its wire: what is computed, who shares a base, and what a killed server has lost."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch.func import functional_call

from loomrl.algorithms.tinker import service as service_module
from loomrl.algorithms.tinker import training as training_module
from loomrl.algorithms.tinker.app import create_app
from loomrl.algorithms.tinker.base import OpenBase
from loomrl.algorithms.tinker.learner import SharedLearner
from loomrl.algorithms.tinker.service import TinkerService
from loomrl.algorithms.tinker.wire import LoraBody, message
from loomrl.config.serving import RemoteTraining
from loomrl.http.site import Site
from loomrl.inference.merged import whole_model
from loomrl.inference.model import open_model, save_model
from loomrl.run.version import copied
from loomrl.serving.deployment.key import StoredKeys
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB, open_store
from loomrl.store.keys import create_key
from loomrl.store.notes import Notes
from loomrl.store.policies import lineage
from loomrl.store.runs import POLICIES, RUNS, RunStatus
from tests.inference.sample_models import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread_in_module")
PROTOBUF = {"content-type": "application/x-protobuf"}
Datum = dict[str, Sequence[float]]


def datum(seed: int, length: int = 9, **columns: Sequence[float]) -> Datum:
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 300, length + 1).tolist()
    weights = {} if columns else {"weights": rng.random(length).round(2).tolist()}
    return {"ids": ids[:-1], "target_tokens": ids[1:], **weights, **columns}


def encode(
    model: str, seq: int, data: Sequence[Datum], loss: str, *, forward: bool = False, **settings: float
) -> bytes:
    asked = message("ForwardBackwardRequest")(model_id=model, seq_id=seq, loss_fn=loss, forward_only=forward)
    for each in data:
        made = asked.data.add()
        made.model_input.add().encoded_text.tokens = np.array(each["ids"], np.int32).tobytes()
        for name, column in each.items():
            if name != "ids":
                kind = np.int64 if name == "target_tokens" else np.float32
                tensor = made.loss_fn_inputs[name]
                tensor.dense = np.array(column, kind).tobytes()
                tensor.dtype = 2 if name == "target_tokens" else 1
                tensor.shape.append(len(column))
    for name, value in settings.items():
        asked.loss_fn_config_v2[name].number = value
    return bytes(asked.SerializeToString())


class Hand:
    """A client: sends as the SDK does, and waits for results."""

    def __init__(self, app: Any, key: str = "") -> None:
        headers = {"x-api-key": f"tml-{key or 'local'}"}
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers)
        self.seq = 0
        self.model = ""

    async def ask(self, path: str, body: dict[str, Any] | bytes | None = None) -> httpx.Response:
        if isinstance(body, bytes):
            return await self.http.post(f"/api/v1/{path}", content=body, headers=PROTOBUF)
        return await self.http.post(f"/api/v1/{path}", json=body or {})

    async def get(self, path: str, body: dict[str, Any] | bytes | None = None) -> Any:
        """The result of a request."""
        answer = (await self.ask(path, body)).raise_for_status().json()
        return await self.result(answer["request_id"])

    async def result(self, request: str) -> Any:
        while (got := await self.ask("retrieve_future", {"request_id": request})).status_code == 408:
            pass
        got.raise_for_status()
        return got.json() if got.headers["content-type"] == "application/json" else got.content

    async def begin(self, **lora: Any) -> "Hand":
        session = (await self.ask("create_session", {"sdk_version": "0"})).json()["session_id"]
        shape = {"rank": 2, "seed": 1, **lora}
        body = {"session_id": session, "model_seq_id": 0, "base_model": "tiny", "lora_config": shape}
        self.model = (await self.get("create_model", body))["model_id"]
        return self

    async def act(self, verb: str, **body: Any) -> Any:
        self.seq += 1
        return await self.get(verb, {"model_id": self.model, "seq_id": self.seq, **body})

    async def learn(self, *data: Datum, loss: str = "cross_entropy", **settings: Any) -> Any:
        self.seq += 1
        return await self.get("forward_backward", encode(self.model, self.seq, data, loss, **settings))

    async def step(self, rate: float = 0.01) -> Any:
        return await self.act("optim_step", adam_params={"learning_rate": rate, "eps": 1e-8})

    async def sampler(self, seq: int = 0) -> str:
        body = {"sampling_session_seq_id": seq}
        return str((await self.act("save_weights_for_sampler", **body))["sampling_session_id"])

    async def sample(self, sampler: str, ids: Sequence[int], *, seq: int = 0, more: Any = None, **how: Any) -> Any:
        prompt = {"chunks": [{"type": "encoded_text", "tokens": list(ids)}]}
        body = {"sampling_session_id": sampler, "seq_id": seq, "prompt": prompt, "sampling_params": how, **(more or {})}
        return message("SampleResponse").FromString(await self.get("asample", body))


def read(output: bytes) -> tuple[float, list[np.ndarray]]:
    """The loss, and the log-probabilities of each datum."""
    got = message("ForwardBackwardOutput").FromString(output)
    batch = got.loss_fn_outputs[0].fields["logprobs"]
    ends = np.frombuffer(batch.offsets, np.int64)[1:-1] // 4
    return got.metrics["loss:sum"], np.split(np.frombuffer(batch.data, np.float32), ends)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tinker")


@pytest.fixture(scope="module")
def db(folder: Path) -> Iterator[LoomDB]:
    with open_store(f"sqlite:///{folder}/loom.db") as opened:
        yield opened


def open_base(folder: Path, db: LoomDB, kind: str = "llama", **settings: Any) -> OpenBase:
    """A base that is called `tiny`."""
    save_model(tiny_model(kind), tiny_tokenizer(), folder / kind)
    places = {"store_url": f"sqlite:///{folder}/loom.db", "artifact_url": f"{folder}/artifacts"}
    shape = {"context": 64, "slots": 4, "pass_tokens": 32}
    return OpenBase(RemoteTraining(base=str(folder / kind), aliases=("tiny",), **places, **{**shape, **settings}), db)


@pytest.fixture(scope="module")
def base(folder: Path, db: LoomDB) -> Iterator[OpenBase]:
    with open_base(folder, db) as opened:
        yield opened


def app(base: OpenBase, db: LoomDB, *, required: bool = False) -> Any:
    keys = StoredKeys(db, required=required)
    return create_app(
        TinkerService(base, db), keys, site=Site(content_types=frozenset({"application/json", *PROTOBUF.values()}))
    )


class PlainLoop:
    """The same training without anything of ours: W + B A scaled, and torch's AdamW."""

    def __init__(self, model: Any, factors: Mapping[str, Any], rank: int) -> None:
        self.model = model
        self.pairs = {
            name: [factor.detach().clone().requires_grad_() for factor in pair] for name, pair in factors.items()
        }
        flat = [factor for pair in self.pairs.values() for factor in pair]
        self.optimizer = torch.optim.AdamW(flat, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
        self.scale = 32 / rank

    @classmethod
    def of(cls, rank: int) -> "PlainLoop":
        """A training of the tiny model that begins as one with seed 1."""
        learner = SharedLearner(tiny_model(), pass_tokens=1, context=1)
        return cls(tiny_model(), learner.open(LoraBody(rank=rank, seed=1)).factors, rank)

    def logprobs(self, each: Datum) -> torch.Tensor:
        weights = dict(self.model.named_parameters())
        for name, (narrow, widen) in self.pairs.items():
            weights[f"{name}.weight"] = weights[f"{name}.weight"].detach() + self.scale * widen @ narrow
        logits = functional_call(self.model, weights, (torch.tensor([each["ids"]]),)).logits[0]
        return torch.log_softmax(logits, -1).gather(1, torch.tensor(each["target_tokens"])[:, None])[:, 0]

    def learn(self, *data: Datum) -> float:
        self.optimizer.zero_grad()
        loss = sum((-self.logprobs(each) * torch.tensor(each["weights"])).sum() for each in data)
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        self.optimizer.step()
        return loss.item()


async def test_losses_of_a_training_equal_those_of_a_plain_torch_loop(base: OpenBase, db: LoomDB) -> None:
    hand = await Hand(app(base, db)).begin(rank=3)
    plain = PlainLoop.of(3)
    for step in range(4):
        data = [datum(step * 3 + number, 5 + 4 * number) for number in range(3)]
        chunks = [await hand.learn(*data[:1]), await hand.learn(*data[1:])]
        logprobs = [found for chunk in chunks for found in read(chunk)[1]]
        expected = [plain.logprobs(each).detach().numpy() for each in data]
        assert max(np.abs(got - want).max() for got, want in zip(logprobs, expected, strict=True)) < 1e-4
        assert sum(read(chunk)[0] for chunk in chunks) == pytest.approx(plain.learn(*data), abs=1e-4)
        assert (await hand.step())["metrics"]["gradient_norm"] > 0


async def work(hand: Hand, seed: int) -> list[Any]:
    """Two steps with accumulated gradients, and what was computed on the way."""
    found = []
    for step in range(2):
        found.append(read(await hand.learn(datum(seed + 10 * step))))
        await asyncio.sleep(0)
        found.append(read(await hand.learn(datum(seed + 10 * step + 1, 14))))
        await hand.step(0.02 / (seed + 1))
    found.append(read(await hand.learn(datum(seed + 100), forward=True)))
    return [(loss, [array.tolist() for array in arrays]) for loss, arrays in found]


async def test_sessions_on_one_base_do_not_disturb_each_other(
    base: OpenBase, db: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [await work(await Hand(app(base, db)).begin(rank=rank), rank) for rank in (2, 3)]
    for resident in (8, 1):  # with room for one, they take turns in memory
        monkeypatch.setattr(base, "settings", base.settings.override({"resident": resident}))
        served = app(base, db)
        together = [await Hand(served).begin(rank=rank) for rank in (2, 3)]
        assert await asyncio.gather(*(work(hand, rank) for hand, rank in zip(together, (2, 3), strict=True))) == alone


async def test_a_request_that_comes_while_its_training_is_saved_to_leave_memory_is_not_lost(
    base: OpenBase, db: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = training_module.save_adapter
    is_saving, may_end = threading.Event(), threading.Event()

    def save_late(*given: Any) -> None:
        is_saving.set()
        assert may_end.wait(30)
        save(*given)

    monkeypatch.setattr(base, "settings", base.settings.override({"resident": 1}))
    alone = await Hand(app(base, db)).begin()
    served = app(base, db)
    hand = await Hand(served).begin()
    for each in (alone, hand):
        await work(each, 1)
    monkeypatch.setattr(training_module, "save_adapter", save_late)
    other = asyncio.create_task(Hand(served).begin())
    assert await asyncio.to_thread(is_saving.wait, 30)
    goes_on = asyncio.create_task(work(hand, 2))
    await asyncio.sleep(0.2)
    may_end.set()
    assert await goes_on == await work(alone, 2)
    await other
    assert read(await hand.learn(datum(3)))[0] == read(await alone.learn(datum(3)))[0]


async def test_a_server_killed_between_any_two_calls_has_lost_nothing(
    base: OpenBase, db: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await work(await Hand(app(base, db)).begin(), 5)
    for repeat_s in (0.0, 1e9):  # every step is saved, or none
        monkeypatch.setattr(service_module, "REPEAT_S", repeat_s)
        hand = await Hand(app(base, db)).begin()

        async def ask_and_kill(
            path: str, body: Any = None, *, hand: Hand = hand, ask: Any = hand.ask
        ) -> httpx.Response:
            answer: httpx.Response = await ask(path, body)
            if path != "retrieve_future":  # taken, perhaps done, and its result not fetched
                for task in asyncio.all_tasks():
                    if "TinkerService" in getattr(task.get_coro(), "__qualname__", ""):
                        task.cancel()
                hand.http = Hand(app(base, db)).http
            return answer

        hand.ask = ask_and_kill  # type: ignore[method-assign]
        assert await work(hand, 5) == expected
        assert read(await hand.result(f"{hand.model}:1"))[0] == expected[0][0]


async def test_a_request_sent_twice_or_out_of_order_is_done_once_in_order(base: OpenBase, db: LoomDB) -> None:
    served = app(base, db)
    hand = await Hand(served).begin()
    data = [datum(1), datum(2)]
    late = await hand.ask("forward_backward", encode(hand.model, 2, data[1:], "cross_entropy"))
    pending = asyncio.create_task(hand.result(late.json()["request_id"]))
    await asyncio.sleep(0.05)
    assert not pending.done()
    for _ in range(2):
        sent = await hand.ask("forward_backward", encode(hand.model, 1, data[:1], "cross_entropy"))
    await pending
    norm = (await hand.get("optim_step", {"model_id": hand.model, "seq_id": 3, "adam_params": {}}))["metrics"]
    await hand.result(sent.json()["request_id"])
    other = await Hand(served).begin()
    await other.learn(*data)
    assert norm == pytest.approx((await other.step())["metrics"])


TINY = {"base_model": "tiny", "lora_config": {"rank": 1}}
OLD = {"logprobs": [-1.5] * 9, "advantages": [1.0, -2.0, 0.5] * 3}


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo"])
async def test_policy_losses_are_those_of_the_client_s_documentation(base: OpenBase, db: LoomDB, loss: str) -> None:
    hand = await Hand(app(base, db)).begin()
    old = read(await hand.learn(datum(1), forward=True))[1][0]
    shifted = (old + np.linspace(-0.6, 0.6, 9)).tolist()
    each = datum(1, logprobs=shifted, advantages=OLD["advantages"])
    thresholds = {} if loss == "importance_sampling" else {"clip_low_threshold": 0.9, "clip_high_threshold": 1.3}
    got, (logp,) = read(await hand.learn(each, loss=loss, **thresholds))
    ratio = np.exp(logp - np.array(shifted, np.float32))
    advantage = np.array(OLD["advantages"], np.float32)
    cut = ratio.clip(0.9, 1.3)
    want = {
        "importance_sampling": -(ratio * advantage).sum(),
        "ppo": -np.minimum(ratio * advantage, cut * advantage).sum(),
        "cispo": -(cut * advantage * logp).sum(),
    }[loss]
    assert got == pytest.approx(want, abs=1e-4)


async def test_what_cannot_be_done_is_named_and_the_next_request_is_done(base: OpenBase, db: LoomDB) -> None:
    served = app(base, db)
    hand = await Hand(served).begin()
    await hand.learn(datum(1))
    refused = [
        (await hand.learn(datum(2), loss="stable_reinforce"), "cross_entropy, importance_sampling, ppo"),
        (await hand.learn(datum(2), loss="ppo"), "needs advantages"),
        (await hand.learn(datum(2), clip_low_threshold=0.1), "clip_low_threshold has no effect"),
        (await hand.learn(datum(2, 65)), "context=64"),
        (await hand.learn({**datum(2), "ids": [300] * 9}), "0 to 299"),
        (await hand.act("load_weights", path="tinker://x/weights/y", optimizer=False), "nothing is saved there"),
        (await hand.act("save_weights_for_sampler", sampling_session_seq_id=0, kind="inflight"), "snapshot"),
        (await hand.act("optim_step", adam_params={"learning_rat": 1}), "learning_rate"),
    ]
    for failed, words in refused:
        assert failed["category"] == "user"
        assert words in failed["error"]
    alone = await Hand(served).begin()
    await alone.learn(datum(1))
    assert (await hand.step())["metrics"] == (await alone.step())["metrics"]
    assert "no gradient" in (await hand.step())["error"]


async def test_a_sampler_keeps_its_weights_while_the_training_goes_on(base: OpenBase, db: LoomDB) -> None:
    hand = await Hand(app(base, db)).begin(rank=4)
    await hand.learn(datum(1))
    await hand.step(0.05)
    sampler = await hand.sampler()
    prompt = [7, 8, 9, 20]
    first = await hand.sample(sampler, prompt, max_tokens=8, seed=3, stop=[], more={"num_samples": 2})
    ids = [np.frombuffer(one.tokens, np.int32).tolist() for one in first.sequences]
    assert [len(each) for each in ids] == [8, 8]
    whole = [*prompt, *ids[0]]
    each = {"ids": whole[:-1], "target_tokens": whole[1:], "weights": [0.0] * (len(whole) - 1)}
    logp = read(await hand.learn(each, forward=True))[1][0]
    assert np.abs(np.frombuffer(first.sequences[0].logprobs, np.float32) - logp[3:]).max() < 1e-4
    await hand.learn(datum(2))
    await hand.step(0.5)
    again = await hand.sample(sampler, prompt, seq=1, max_tokens=8, seed=3, stop=[])
    assert np.frombuffer(again.sequences[0].tokens, np.int32).tolist() == ids[0]
    scored = await hand.sample(sampler, whole, seq=2, max_tokens=1, more={"prompt_logprobs": True})
    found = np.frombuffer(scored.prompt_logprobs, np.float32)
    assert np.isnan(found[0])
    assert np.abs(found[1:] - logp).max() < 1e-4


async def test_an_answer_ends_at_a_stop_string_and_obeys_top_k(base: OpenBase, db: LoomDB) -> None:
    hand = await Hand(app(base, db)).begin()
    sampler = await hand.sampler()
    free = (await hand.sample(sampler, [7, 8], max_tokens=12, seed=5)).sequences[0]
    ids = np.frombuffer(free.tokens, np.int32).tolist()
    text = tiny_tokenizer().decode(ids[4:6])
    likeliest = (await hand.sample(sampler, [7, 8], seq=2, max_tokens=12, temperature=0.0)).sequences[0]
    only = (await hand.sample(sampler, [7, 8], seq=3, max_tokens=12, seed=5, top_k=1)).sequences[0]
    assert only.tokens == likeliest.tokens != free.tokens
    cut = (await hand.sample(sampler, [7, 8], seq=1, max_tokens=12, seed=5, stop=text)).sequences[0]
    got = np.frombuffer(cut.tokens, np.int32).tolist()
    assert text in tiny_tokenizer().decode(got)
    assert got == ids[: len(got)]
    assert cut.stop_reason == 0


async def test_saved_weights_are_a_version_like_any_other(folder: Path, db: LoomDB) -> None:
    with open_base(folder, db, "qwen2") as tied:  # one tensor at both ends, and only one of them has additions
        await train_save_and_go_on(tied, db)


async def train_save_and_go_on(base: OpenBase, db: LoomDB) -> None:
    hand = await Hand(app(base, db)).begin(rank=3)
    await hand.learn(datum(1))
    await hand.step(0.05)
    path = (await hand.act("save_weights", path="first"))["path"]
    told = (await hand.ask("get_info", {"model_id": hand.model})).json()
    assert (told["lora_rank"], told["model_name"], told["model_data"]["tokenizer_id"]) == (3, "tiny", None)
    version = POLICIES.latest(db, run=hand.model.replace(":train:", "-"), limit=1)[0]
    assert source_of(version.id, db).version == version.id
    expected = read(await hand.learn(datum(9), forward=True))[1][0]
    merged = open_model(whole_model(copied(version, db)))
    with torch.no_grad():
        logits = merged(torch.tensor([datum(9)["ids"]])).logits[0]
    got = torch.log_softmax(logits, -1).gather(1, torch.tensor(datum(9)["target_tokens"])[:, None])[:, 0]
    assert np.abs(got.numpy() - expected).max() < 1e-4

    child = Hand(app(base, db))
    session = (await child.ask("create_session", {"sdk_version": "0"})).json()["session_id"]
    body = {"session_id": session, "model_seq_id": 0, "path": path, "optimizer": True}
    child.model = (await child.get("load_weights", body))["model_id"]
    assert read(await child.learn(datum(9), forward=True))[1][0].tolist() == expected.tolist()
    for each in (hand, child):
        await each.learn(datum(3))
        await each.step()
    after = [read(await each.learn(datum(4), forward=True))[0] for each in (hand, child)]
    assert after[0] == after[1]
    assert (await child.ask(f"sessions/{session}/finish", {"reason": {"type": "success"}})).status_code == 200
    run = child.model.replace(":train:", "-")
    assert RUNS.require(db, run).status is RunStatus.FINISHED
    assert [each["id"] for each in lineage(db, f"{run}/1")["ancestors"]] == [f"{run}/0", version.id]
    assert (await child.ask("session_heartbeat", {"session_id": session})).status_code == 410


async def test_a_session_whose_client_is_gone_is_ended_and_what_it_saved_stays(base: OpenBase, db: LoomDB) -> None:
    served = app(base, db)
    gone = await Hand(served).begin()
    await gone.learn(datum(1))
    await gone.step()
    path = (await gone.act("save_weights", path="kept"))["path"]
    session = {"session_id": gone.model.partition(":")[0]}
    await gone.ask("session_heartbeat", session)
    assert (await Hand(served).begin()).model
    assert (await gone.ask("session_heartbeat", session)).status_code == 200
    Notes(db).keep(f"tinker/seen/{session['session_id']}", str(time.time() - 100_000))
    other = await Hand(served).begin()
    assert (await gone.ask("session_heartbeat", session)).status_code == 410
    assert RUNS.require(db, gone.model.replace(":train:", "-")).status is RunStatus.FINISHED
    assert (await other.act("load_weights", path=path, optimizer=True))["path"] == path


async def test_a_session_is_its_key_s(base: OpenBase, db: LoomDB) -> None:
    served = app(base, db, required=True)
    mine, theirs, other = (create_key(db, name, scopes=(scope,), at=1.0)[0] for name, scope in
                           (("a", "train"), ("b", "train"), ("c", "act")))  # fmt: skip
    hand = await Hand(served, mine).begin()
    session = {"session_id": hand.model.partition(":")[0]}
    statuses = [
        (await Hand(served, key).ask("session_heartbeat", session)).status_code for key in (mine, theirs, other)
    ]
    assert statuses == [200, 403, 403]
    assert (await Hand(served, "nonsense").ask("session_heartbeat", session)).status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("create_model", {"base_model": "other", "lora_config": {"rank": 1}}, "tiny"),
        ("create_model", {"base_model": "tiny"}, "lora_config is missing"),
        ("create_model", {**TINY, "optimizer_config": {"type": "dimuon"}}, "adamw"),
        ("create_model", {"base_model": "tiny", "lora_config": {"rank": 0}}, "rank"),
        ("create_sampling_session", {"sampling_session_seq_id": 0, "model_path": "tinker://a/weights/b"}, "saved"),
        ("save_weights_external", {}, "is not there"),
    ],
)  # fmt: skip
async def test_what_is_not_there_is_refused_by_name(
    base: OpenBase, db: LoomDB, path: str, body: dict[str, Any], words: str
) -> None:
    hand = await Hand(app(base, db)).begin()
    about = {} if path == "save_weights_external" else {"session_id": hand.model.partition(":")[0]}
    more = {"model_seq_id": 1} if path == "create_model" else {}
    refused = await hand.ask(path, {**about, **more, **body})
    assert refused.status_code in (400, 404)
    assert words in refused.json()["message"]


async def test_samples_lost_with_a_process_are_to_be_asked_again(base: OpenBase, db: LoomDB) -> None:
    hand = await Hand(app(base, db)).begin()
    sampler = await hand.sampler()
    await hand.sample(sampler, [7, 8], max_tokens=2)
    hand.http = Hand(app(base, db)).http
    assert (await hand.ask("retrieve_future", {"request_id": f"{sampler}:0"})).status_code == 410
    assert (await hand.sample(sampler, [7, 8], seq=1, max_tokens=2)).sequences


async def test_a_name_that_has_expired_is_nobody_s(base: OpenBase, db: LoomDB, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = await Hand(app(base, db)).begin()
    path = (await hand.act("save_weights", path="soon", ttl_seconds=3600))["path"]
    listed = (await hand.http.get(f"/api/v1/training_runs/{hand.model}/checkpoints")).json()["checkpoints"]
    assert [one["tinker_path"] for one in listed] == [path]
    key = f"tinker/path/{path.removeprefix('tinker://')}"
    note = json.loads(Notes(db).find(key) or "")
    Notes(db).keep(key, json.dumps({**note, "expires_at": 1.0}))
    assert "expired" in (await hand.act("load_weights", path=path, optimizer=False))["error"]
