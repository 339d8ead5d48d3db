import math
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from loomrl.algorithms.language.learner import ADVANTAGE, SAMPLE, LanguageLearner
from loomrl.algorithms.language.loss import (
    dpo_loss,
    importance_weight,
    kto_loss,
    sum_by_sample,
    token_weights,
)
from loomrl.algorithms.language.sample import AGE, ENGINE, SHIFT
from loomrl.algorithms.language.score import LOGITS_AT_ONCE, Head, chosen_logprobs
from loomrl.algorithms.losses import cispo_loss, kl_estimate, policy_loss, value_loss
from loomrl.config import GRPO, Clip
from loomrl.telemetry.metric import Metric

LOG2 = math.log(2)
numbers = st.floats(-4, 4, width=32)


def columns(width: int) -> st.SearchStrategy[Tensor]:
    """`width` rows of as many numbers."""
    return st.integers(1, 8).flatmap(
        lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=width, max_size=width).map(
            lambda rows: torch.tensor(rows, dtype=torch.float64)
        )
    )


def slope(loss: Tensor, by: Tensor) -> Tensor:
    return torch.autograd.grad(loss.sum(), by)[0]


# -- policy ---------------------------------------------------------------------------------------------------------


def test_policy_loss_on_ratios_around_the_clip() -> None:
    """Ratios 1, 2, ½, 2, ½, 8 against 0.75 … 1.5 with dual clip 4."""
    logp = torch.tensor([0, LOG2, -LOG2, LOG2, -LOG2, 3 * LOG2], requires_grad=True)
    advantage = torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    loss, clipped = policy_loss(logp, torch.zeros(6), advantage, clip=Clip(low=0.25, high=0.5, dual=4.0))
    torch.testing.assert_close(loss, torch.tensor([-2.0, -3.0, -1.0, 4.0, 1.5, 8.0]))
    assert clipped.tolist() == [False, True, False, False, True, True]
    torch.testing.assert_close(slope(loss, logp), torch.tensor([-2.0, 0, -1.0, 4.0, 0, 0]))


def test_without_dual_clip_a_runaway_ratio_counts_in_full() -> None:
    loss, clipped = policy_loss(torch.tensor([3 * LOG2]), torch.zeros(1), torch.tensor([-2.0]), clip=Clip())
    assert loss.item() == pytest.approx(16)
    assert not clipped.any()


@pytest.mark.parametrize("surrogate", [policy_loss, cispo_loss])
@given(rows=columns(2))
def test_on_policy_the_gradient_is_that_of_reinforce(surrogate: Any, rows: Tensor) -> None:
    logp, advantage = rows
    logp = logp.requires_grad_()
    loss, clipped = surrogate(logp, logp.detach(), advantage, clip=Clip())
    torch.testing.assert_close(slope(loss, logp), -advantage)
    assert not clipped.any()


def test_ratios_that_cispo_cuts_teach_as_weights() -> None:
    """Ratios 1, 2, ½ against 0.75 … 1.5: cut to 1, 1.5, 0.75, and never without a gradient."""
    logp = torch.tensor([0, LOG2, -LOG2], requires_grad=True)
    advantage = torch.tensor([2.0, 2.0, -2.0])
    loss, cut = cispo_loss(logp, torch.zeros(3), advantage, clip=Clip(low=0.25, high=0.5))
    torch.testing.assert_close(slope(loss, logp), torch.tensor([-2.0, -3.0, 1.5]))
    assert cut.tolist() == [False, True, True]


class Learner(LanguageLearner):
    """A learner's loss, without a model."""

    def __init__(self, **settings: Any) -> None:
        self.config = SimpleNamespace(algorithm=GRPO(optimizer={"epochs": 2}, **settings))
        self._sums = {}

    def loss(self, logp: Tensor, old: Tensor, advantage: Tensor, **columns: Tensor) -> Tensor:
        """The loss of tokens that the policy sampled which learns."""
        given = {ENGINE: old, AGE: torch.zeros(len(old)), SHIFT: torch.zeros(len(old)), ADVANTAGE: advantage}
        return self.policy_loss({"logp_K": logp, "entropy_K": torch.zeros(len(logp))}, given | columns, old)


@given(columns(2), st.integers(0, 99))
def test_ratios_of_sequences_are_those_of_gspo(rows: Tensor, seed: int) -> None:
    logp, old = rows
    logp = logp.requires_grad_()
    sample = torch.randint(0, 3, logp.shape, generator=torch.Generator().manual_seed(seed)).sort().values
    advantage = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    loss = Learner(ratio="sequence").loss(logp, old, advantage[sample], **{SAMPLE: sample})
    naive = torch.zeros((), dtype=torch.float64)
    for number in sample.unique():
        mine = sample == number
        ratio = ((logp - old)[mine].sum() / mine.sum()).exp()
        gain = torch.min(ratio * advantage[number], ratio.clamp(0.8, 1.2) * advantage[number])
        naive = naive - gain * mine.sum()
    torch.testing.assert_close(loss.sum(), naive)
    torch.testing.assert_close(slope(loss, logp), slope(naive, logp))


def test_the_surrogate_of_an_algorithm_is_the_one_that_it_names() -> None:
    old = torch.zeros(2)
    logp = torch.tensor([LOG2, -LOG2], requires_grad=True)
    for kind, expected in (("clip", [0.0, -0.5]), ("cispo", [-1.2, -0.8])):
        loss = Learner(surrogate=kind).loss(logp, old, torch.ones(2))
        torch.testing.assert_close(slope(loss, logp), torch.tensor(expected))


def test_token_of_an_older_policy_is_weighed_by_that_policy_and_clipped_by_the_present_one() -> None:
    learner = Learner(importance_cap=2.0)
    columns = {ENGINE: torch.tensor([0.5, 0.2, 0.1]).log(), AGE: torch.tensor([0.0, 1.0, 2.0])}
    old = torch.tensor([0.5, 0.3, 0.4]).log()
    now = torch.tensor([0.55, 0.33, 0.44]).log().requires_grad_()
    loss = learner.loss(now, old, torch.tensor([1.0, 1.0, -1.0]), **columns)
    expected = torch.tensor([-1.1 * 1.0, -1.1 * 1.5, 1.1 * 2.0])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(slope(loss, now), expected)
    assert learner._sums[Metric.POLICY_DRIFT] == [0.0, 1]


def test_token_teaches_as_much_as_nothing_raised_its_odds() -> None:
    logp = torch.tensor([0.5, 0.5, 0.5, 0.5]).log().requires_grad_()
    shift = torch.tensor([0.0, LOG2, math.inf, -LOG2])
    advantage = torch.ones(4)
    loss = Learner().loss(logp, logp.detach(), advantage, **{SHIFT: shift})
    assert slope(loss, logp).tolist() == [-1.0, -0.5, 0.0, -1.0]


def test_absurd_ratios_stay_finite() -> None:
    logp = torch.tensor([500.0, -500.0], requires_grad=True)
    loss, _ = policy_loss(logp, torch.zeros(2), torch.tensor([-1.0, 1.0]), clip=Clip())
    assert torch.isfinite(loss).all()
    assert torch.isfinite(slope(loss, logp)).all()
    assert torch.isfinite(kl_estimate(logp, -logp, estimator="k3")).all()


# -- value, leash, trust, preference -----------------------------------------------------------------------------


def test_a_value_that_left_its_clip_towards_the_return_stops_learning() -> None:
    value = torch.tensor([1.0, -1.0, 0.1], requires_grad=True)
    loss = value_loss(value, torch.zeros(3), torch.tensor([2.0, 2.0, 2.0]), clip=0.2)
    torch.testing.assert_close(loss, 0.5 * torch.tensor([1.8**2, 3.0**2, 1.9**2]))
    torch.testing.assert_close(slope(loss, value), torch.tensor([0.0, -3.0, -1.9]))


def test_kl_estimators_on_a_token_twice_as_likely() -> None:
    logp = torch.tensor([LOG2])
    reference = torch.zeros(1)
    assert kl_estimate(logp, reference, estimator="k1").item() == pytest.approx(LOG2)
    assert kl_estimate(logp, reference, estimator="k2").item() == pytest.approx(LOG2**2 / 2)
    assert kl_estimate(logp, reference, estimator="k3").item() == pytest.approx(0.5 - 1 + LOG2)


def test_importance_is_capped_and_has_no_gradient() -> None:
    old = torch.tensor([LOG2, -LOG2, 200.0], requires_grad=True)
    weight = importance_weight(old, torch.zeros(3), cap=1.5)
    torch.testing.assert_close(weight, torch.tensor([1.5, 0.5, 1.5]))
    assert not weight.requires_grad


def test_dpo_loss_on_a_known_margin() -> None:
    chosen = torch.tensor([3.0, 1.0], requires_grad=True)
    rejected = torch.tensor([1.0, 1.0])
    references = (torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]))
    loss, margin = dpo_loss(chosen, rejected, *references, beta=0.5, label_smoothing=0.0)
    torch.testing.assert_close(margin, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(loss, torch.tensor([math.log(1 + math.exp(-1)), LOG2]))
    torch.testing.assert_close(slope(loss, chosen), torch.tensor([-0.5 / (1 + math.e), -0.25]))
    smooth, _ = dpo_loss(chosen, rejected, *references, beta=0.5, label_smoothing=0.25)
    torch.testing.assert_close(smooth, loss + 0.25 * margin)


def test_kto_loss_on_known_gains() -> None:
    """Gains 3, 1, 3 over a baseline of 1 with beta 0.5: a desirable answer ahead, one at it, an undesirable ahead."""
    gain = torch.tensor([3.0, 1.0, 3.0], requires_grad=True)
    label = torch.tensor([2.0, 1.0, -1.0])
    loss, margin = kto_loss(gain, label, kl=1.0, beta=0.5)
    sigmoid = 1 / (1 + math.exp(-1))
    torch.testing.assert_close(margin, torch.tensor([1.0, 0.0, -1.0]))
    torch.testing.assert_close(loss, torch.tensor([2 * (1 - sigmoid), 0.5, sigmoid]))
    steep = 0.5 * sigmoid * (1 - sigmoid)
    torch.testing.assert_close(slope(loss, gain), torch.tensor([-2 * steep, -0.125, steep]))


# -- averages --------------------------------------------------------------------------------------------------------


def test_sums_by_sample_count_every_token_once() -> None:
    sums = sum_by_sample(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2, 0, 2]), samples=4)
    assert sums.tolist() == [2.0, 0.0, 5.0, 0.0]


def test_weights_of_tokens_and_of_sequences() -> None:
    targets = np.array([1, 3, 0])
    by_token = token_weights(targets, average="token", tokens=4, samples=2)
    np.testing.assert_allclose(by_token, [0.25, 0.25, 0.25])
    by_sequence = token_weights(targets, average="sequence", tokens=4, samples=2)
    np.testing.assert_allclose(by_sequence[:2], [1 / 2, 1 / 6])


@pytest.mark.parametrize("average", ["token", "sequence"])
@given(
    targets=st.lists(st.integers(0, 7), min_size=1, max_size=9).filter(any),
    cuts=st.lists(st.integers(0, 9), max_size=4),
    seed=st.integers(0, 9),
)
def test_micro_batches_and_learners_add_up_to_one_big_batch(
    average: str, targets: list[int], cuts: list[int], seed: int
) -> None:
    model = nn.Linear(3, 1).double()
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randn(count, 3, generator=generator, dtype=torch.float64) for count in targets]
    total = {"tokens": sum(targets), "samples": sum(count > 0 for count in targets)}

    def loss(part: slice) -> Tensor:
        if not tokens[part]:
            return torch.zeros(())
        counts = np.array(targets[part])
        weight_N = token_weights(counts, average=average, **total)  # type: ignore[arg-type]
        weight_K = torch.from_numpy(np.repeat(weight_N, counts))
        return (weight_K * model(torch.cat(tokens[part]))[:, 0].square()).sum()

    def gradient(parts: list[slice]) -> list[Tensor]:
        model.zero_grad()
        for part in parts:
            loss(part).backward() if tokens[part] else None
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    edges = [0, *sorted(min(cut, len(targets)) for cut in cuts), len(targets)]
    parts = [slice(a, b) for a, b in pairwise(edges)]
    torch.testing.assert_close(gradient(parts), gradient([slice(None)]))
    errors = [model(part)[:, 0].square() for part in tokens if len(part)]
    mean = torch.cat(errors).mean() if average == "token" else torch.stack([e.mean() for e in errors]).mean()
    torch.testing.assert_close(loss(slice(None)), mean, atol=1e-6, rtol=1e-5)


# -- learning ---------------------------------------------------------------------------------------------------------

TOKENS = 37
HIDDEN = 8
VOCABULARY = 50


def naive(hidden: Tensor, head: Head, target: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    logp = torch.log_softmax(head(hidden).float() / temperature, -1)
    return logp.gather(-1, target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def scene(tokens: int = TOKENS, vocabulary: int = VOCABULARY) -> tuple[Tensor, nn.Linear, Tensor]:
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(HIDDEN, vocabulary, bias=False)
    nn.init.normal_(head.weight, generator=generator)
    hidden = torch.randn(tokens, HIDDEN, generator=generator).requires_grad_()
    return hidden, head, torch.randint(vocabulary, (tokens,), generator=generator)


def gradients(hidden: Tensor, head: nn.Module, scores: tuple[Tensor, Tensor]) -> list[Tensor]:
    logp, entropy = scores
    ramp = torch.linspace(-1, 1, len(logp))
    return list(
        torch.autograd.grad((ramp * logp).sum() + (ramp.square() * entropy).sum(), [hidden, *head.parameters()])
    )


@pytest.mark.parametrize("chunk", [1, 7, TOKENS, 100, None])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_are_those_of_a_plain_log_softmax(chunk: int | None, temperature: float) -> None:
    hidden, head, target = scene()
    expected = naive(hidden, head, target, temperature)
    scores = chosen_logprobs(hidden, head, target, temperature=temperature, chunk=chunk)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients(hidden, head, scores), gradients(hidden, head, expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("used", [0, 1], ids=["logprob", "entropy"])
@pytest.mark.parametrize("chunk", [7, None])
def test_one_of_the_two_alone_has_the_gradient_of_a_plain_log_softmax(used: int, chunk: int | None) -> None:
    hidden, head, target = scene()
    ours, plain = (
        torch.autograd.grad(scores[used].square().sum(), [hidden, *head.parameters()])
        for scores in (chosen_logprobs(hidden, head, target, chunk=chunk), naive(hidden, head, target))
    )
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


def test_a_bfloat16_head_still_gets_a_float32_softmax() -> None:
    hidden, head, target = scene()
    low = head.bfloat16()
    half = hidden.detach().bfloat16()
    logp, entropy = chosen_logprobs(half, low, target, chunk=10)
    assert logp.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close((logp, entropy), naive(half, low, target))


def test_no_tensor_as_large_as_all_logits_is_ever_made_or_saved() -> None:
    tokens = 256
    vocabulary = 100
    chunk = 32
    hidden, head, target = scene(tokens, vocabulary)
    made: list[int] = []
    saved: list[int] = []
    head.register_forward_hook(lambda _module, _inputs, output: made.append(output.numel()))

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = chosen_logprobs(hidden, head, target, chunk=chunk)
    kept = max(saved)
    gradients(hidden, head, scores)
    assert kept <= tokens * HIDDEN  # between the passes the hidden states are kept, and not one chunk of logits
    assert max(made) == chunk * vocabulary
    assert len(made) == 2 * tokens // chunk


def test_chunks_follow_the_vocabulary() -> None:
    hidden, _, target = scene(tokens=9)
    seen: list[int] = []

    def head(part: Tensor) -> Tensor:
        seen.append(len(part))
        return torch.zeros(1, 1).expand(len(part), LOGITS_AT_ONCE["cpu"] // 4)

    with torch.no_grad():
        chosen_logprobs(hidden, head, target)
    assert seen == [1, 4, 4, 1]


def test_no_targets_still_reach_every_parameter() -> None:
    hidden, head, target = scene()
    logp, entropy = chosen_logprobs(hidden[:0], head, target[:0])
    (logp.sum() + entropy.sum()).backward()
    assert hidden.grad is not None
    assert head.weight.grad is not None
    assert not head.weight.grad.any()


def test_a_tied_and_partly_frozen_head_gets_its_gradient_once_from_all_chunks() -> None:
    """The embedding is the head as well, and a low-rank addition is trained beside it."""
    _, head, target = scene()
    embedding = nn.Embedding.from_pretrained(head.weight.detach().clone(), freeze=False)
    low = nn.Parameter(torch.full((2, HIDDEN), 0.1))
    high = nn.Parameter(torch.full((VOCABULARY, 2), 0.1))

    def tied(part: Tensor) -> Tensor:
        return part @ embedding.weight.T + part @ low.T @ high.T

    def trained(scoring: Callable[..., tuple[Tensor, Tensor]], **settings: int) -> list[Tensor]:
        logp, entropy = scoring(embedding(target.roll(1)), tied, target, **settings)
        return list(torch.autograd.grad((logp - entropy).sum(), [embedding.weight, low, high]))

    torch.testing.assert_close(trained(chosen_logprobs, chunk=5), trained(naive), atol=1e-4, rtol=1e-4)
