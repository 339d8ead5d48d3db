"""An engine that gives its memory to a learner while requests are open."""

import asyncio

import numpy as np
import pytest
from sample_models import answers, random_prompt, request, tiny_model

from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.graph_engine import GraphEngine
from loomrl.inference.weights.sealed import seal

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", [TorchEngine, GraphEngine])
async def test_open_requests_wait_without_a_cache_for_other_weights_and_go_on_from_their_tokens(
    kind: type[TorchEngine],
) -> None:
    model = tiny_model(scale=0.2)
    asked = [request(random_prompt(seed // 2, 3 + seed), seed=seed, max_tokens=12 + 3 * seed) for seed in range(7)]
    expected = await answers(TorchEngine(tiny_model(scale=0.2), slots=4, context=64), asked)
    engine = kind(model, slots=4, context=64)
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked[:-1]]
    for version in (1, 2):
        while engine.statistics.sampled_tokens < 40 * version:  # noqa: ASYNC110 - a step is a turn of this loop
            await asyncio.sleep(0)
        engine.pause()
        made = engine.statistics.sampled_tokens
        assert not engine._network.kept._layers  # type: ignore[union-attr]
        turns = [(opened.turn, opened.turn.waited_s()) for opened in engine._rows.opened]
        assert len(turns) > 2
        if version == 1:
            tasks.append(asyncio.create_task(engine.generate(asked[-1])))
        await asyncio.sleep(0.02)
        assert all(turn.waited_s() - before > 0.019 for turn, before in turns)  # no attempt's deadline counts it
        assert engine.statistics.sampled_tokens == made
        await engine.load(seal(model.state_dict(), version))
    got = await asyncio.gather(*tasks)
    for one, other in zip(expected, got, strict=True):
        assert one.ids_T.tolist() == other.ids_T.tolist()
        assert np.abs(one.logprobs_T - other.logprobs_T).max() < 1e-5
    assert {int(version) for one in got for version in one.versions_T} == {0, 1, 2}


async def test_a_paused_engine_that_is_closed_fails_what_waits() -> None:
    engine = TorchEngine(tiny_model(), slots=2, context=64)
    engine.pause()
    waiting = asyncio.create_task(engine.generate(request([1, 2])))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(Exception, match="the engine was closed"):
        await waiting
