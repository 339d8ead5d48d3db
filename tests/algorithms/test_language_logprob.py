import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from loomrl.algorithms.language.score import LOGITS_AT_ONCE, Head, chosen_logprobs

TOKENS, HIDDEN, VOCABULARY = 37, 8, 50


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
    low, half = head.bfloat16(), hidden.detach().bfloat16()
    logp, entropy = chosen_logprobs(half, low, target, chunk=10)
    assert logp.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close((logp, entropy), naive(half, low, target))


def test_no_tensor_as_large_as_all_logits_is_ever_made_or_saved() -> None:
    tokens, vocabulary, chunk = 256, 100, 32
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


def test_small_vocabularies_are_not_slowed_down() -> None:
    hidden, head, target = scene(tokens=4096, vocabulary=320)

    def seconds(function: Callable[..., tuple[Tensor, Tensor]]) -> float:
        start = time.process_time()
        gradients(hidden, head, function(hidden, head, target))
        return time.process_time() - start

    pairs = [(seconds(chosen_logprobs), seconds(naive)) for _ in range(5)]
    assert min(ours / plain for ours, plain in pairs) < 1.1
