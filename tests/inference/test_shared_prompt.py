"""Prompts that several rows of the embedded engine begin with are kept once, and nobody's log-probabilities tell."""

import asyncio
import copy

import pytest
from sample_models import TOLERANCE, answers, drift_by_version, random_prompt, request, tiny_model

from loomrl.inference.engine import Completion, Request
from loomrl.inference.torch import fused
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.prefix import Attended, PrefixArrangement
from loomrl.inference.weights.sealed import seal

pytestmark = pytest.mark.usefixtures("one_thread")

FUSED = ("llama", "qwen2", "qwen3")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Every prompt of a group is worth sharing; of each read of a prefix, its length and its rows."""
    seen: list[tuple[int, int]] = []
    plain = PrefixArrangement.attend

    def attend(self: PrefixArrangement, *args: object) -> Attended:
        seen.extend((prefix.length, end - first) for prefix, first, end in self.spans)
        return plain(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(fused, "PREFIX_BYTES", 1)
    monkeypatch.setattr(PrefixArrangement, "attend", attend)
    return seen


async def until_sampled(engine: TorchEngine, tokens: int) -> None:
    while engine.statistics.sampled_tokens < tokens:  # noqa: ASYNC110 - a step is a turn of this loop
        await asyncio.sleep(0)


def groups() -> list[Request]:
    """Three groups of four with answers of many lengths, among requests with prompts of their own."""
    asked = []
    for seed in range(12):
        asked.append(request(random_prompt(seed // 4, 9 + 7 * (seed // 4)), seed=seed, max_tokens=3 + 5 * seed % 17))
        if seed % 3 == 0:
            asked.append(request(random_prompt(50 + seed, 1 + 4 * seed), seed=seed, max_tokens=2 + seed))
    return asked


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("slots", [5, 32])
def test_a_shared_prompt_changes_no_log_probability(kind: str, slots: int, shared: list[tuple[int, int]]) -> None:
    model, asked = tiny_model(kind), groups()
    got = asyncio.run(answers(TorchEngine(model, slots=slots, context=96), asked))
    assert drift_by_version([model], asked, got) <= TOLERANCE
    assert {length for length, _ in shared} >= {8, 15, 22}
    assert max(rows for _, rows in shared) == 4 or slots == 5


def test_answers_are_those_of_rows_that_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, found = groups(), []
    for least in (1, 2**60):
        monkeypatch.setattr(fused, "PREFIX_BYTES", least)
        found.append(asyncio.run(answers(TorchEngine(tiny_model(scale=0.1), slots=32, context=96), asked)))
    for one, other in zip(*found, strict=True):
        assert one.ids_T.tolist() == other.ids_T.tolist()


def test_the_same_requests_give_the_same_bits(shared: list[tuple[int, int]]) -> None:
    first, second = (asyncio.run(answers(TorchEngine(tiny_model(), slots=7, context=96), groups())) for _ in range(2))
    assert shared
    for one, other in zip(first, second, strict=True):
        assert one.ids_T.tobytes() == other.ids_T.tobytes()
        assert one.logprobs_T.tobytes() == other.logprobs_T.tobytes()


@pytest.mark.parametrize("kind", FUSED)
async def test_a_sibling_that_comes_later_joins_the_prompt_of_an_open_one(
    kind: str, shared: list[tuple[int, int]]
) -> None:
    model = tiny_model(kind)
    engine = TorchEngine(copy.deepcopy(model), slots=4, context=64)
    asked = [request(random_prompt(0, 9), seed=seed, max_tokens=20) for seed in range(3)]
    tasks = []
    for index, one in enumerate(asked):
        tasks.append(asyncio.create_task(engine.generate(one)))
        await until_sampled(engine, 4 + 5 * index)
    assert drift_by_version([model], asked, await asyncio.gather(*tasks)) <= TOLERANCE
    assert [rows for rows in (2, 3) if (8, rows) in shared] == [2, 3]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_prompt_read_by_an_older_version_is_not_shared_with_a_newer_one(
    temperature: float, shared: list[tuple[int, int]]
) -> None:
    """Greedy siblings have equal answers too, so what they share after the new weights is more than the prompt."""
    models = [tiny_model(seed=seed) for seed in range(3)]
    engine = TorchEngine(copy.deepcopy(models[0]), slots=8, context=64)
    asked = [request(random_prompt(0, 9), seed=seed, max_tokens=24, temperature=temperature) for seed in range(7)]
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked[:3]]
    for version in (1, 2):
        await until_sampled(engine, 12 * version)
        await engine.load(seal(models[version].state_dict(), version))
        tasks.append(asyncio.create_task(engine.generate(asked[len(tasks)])))
        await until_sampled(engine, 12 * version + 8)
        tasks.append(asyncio.create_task(engine.generate(asked[len(tasks)])))
    got = await asyncio.gather(*tasks)
    assert drift_by_version(models, asked[: len(tasks)], got) <= TOLERANCE
    assert {0, 1, 2} <= {int(version) for completion in got for version in completion.versions_T}
    assert temperature or len({length for length, _ in shared}) > 1


async def test_a_row_forgets_the_prompt_of_its_last_user(shared: list[tuple[int, int]]) -> None:
    model = tiny_model()
    engine = TorchEngine(copy.deepcopy(model), slots=2, context=64)
    asked = [request(random_prompt(0, 9), seed=seed, max_tokens=3) for seed in range(2)]
    asked += [request([7 + seed], seed=seed, max_tokens=8) for seed in range(2)]
    assert drift_by_version([model], asked, await answers(engine, asked)) <= TOLERANCE
    assert (8, 2) in shared


async def test_requests_that_go_leave_their_siblings_as_they_were(shared: list[tuple[int, int]]) -> None:
    model = tiny_model("qwen2")
    engine = TorchEngine(copy.deepcopy(model), slots=6, context=64)
    asked = [request(random_prompt(seed % 2, 12), seed=seed, max_tokens=20) for seed in range(6)]
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked]
    await until_sampled(engine, 12)
    for gone in (0, 3, 5):
        tasks[gone].cancel()
    got = await asyncio.gather(*(tasks[kept] for kept in (1, 2, 4)))
    assert drift_by_version([model], [asked[kept] for kept in (1, 2, 4)], got) <= TOLERANCE
    assert (11, 3) in shared


@pytest.mark.parametrize("kind", FUSED)
async def test_a_conversation_goes_on_from_the_prompt_of_its_group(kind: str, shared: list[tuple[int, int]]) -> None:
    """Of the second turn only what follows the prompt is read."""
    model, own = tiny_model(kind), tiny_model(kind)
    engine = TorchEngine(own, slots=6, context=96)
    read: list[tuple[int, ...]] = []
    own.model.layers[0].self_attn.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(tuple(kwargs["hidden_states"].shape[:2])), with_kwargs=True
    )
    first = [request(random_prompt(0, 21), seed=seed, max_tokens=4 + 3 * seed) for seed in range(4)]

    async def talk(one: Request) -> tuple[Request, Completion]:
        said = await engine.generate(one)
        return (more := request([*one.prompt_T, *said.ids_T, 1, 2, 3], seed=one.seed)), await engine.generate(more)

    asked, got = zip(*await asyncio.gather(*map(talk, first)), strict=True)
    assert drift_by_version([model], asked, got) <= TOLERANCE
    assert read == [(1, 20), *((1, len(one.prompt_T) - 1 - 20) for one in asked)]
    assert max(rows for _, rows in shared) == 4


def test_weights_are_kept_with_the_inputs_first() -> None:
    engine = TorchEngine(tiny_model())
    layer = engine._open_network().model.model.layers[0]
    for part in (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.down_proj):
        assert part.weight.stride(0) == 1
