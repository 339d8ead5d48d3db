"""Draws are the distribution's, streams are their seeds'."""

import numpy as np
import pytest
import torch

from loomrl.inference.torch.rows import draw, uniforms

LOGITS = torch.tensor([[0.0, 2.0, -torch.inf, 1.0, -3.0]])


def shares(temperature: float, top_p: float | None = None, count: int = 4000) -> np.ndarray:
    """Frequency of each token if the uniform numbers are spread evenly."""
    uniform_N = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    p = None if top_p is None else torch.full((count,), top_p, dtype=torch.float64)
    temperatures = torch.full((count,), temperature, dtype=torch.float64)
    token_N, logp_N, _ = draw(LOGITS.expand(count, -1), temperatures, p, uniform_N)
    expected = torch.log_softmax(LOGITS[0] / (temperature or 1.0), -1)[token_N]
    assert torch.allclose(logp_N, expected, atol=1e-6)
    return np.bincount(token_N, minlength=5) / count


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    assert np.abs(shares(temperature) - (LOGITS[0] / temperature).softmax(-1).numpy()).max() < 1e-3


def test_temperature_zero_takes_the_likeliest() -> None:
    assert shares(0.0).tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(("top_p", "kept"), [(1e-9, [1]), (0.6, [1]), (0.7, [1, 3]), (0.95, [1, 3, 0])])
def test_the_nucleus_is_the_fewest_likeliest_tokens_that_hold_top_p(top_p: float, kept: list[int]) -> None:
    expected = torch.zeros(5).index_copy(0, torch.tensor(kept), LOGITS[0].softmax(-1)[kept])
    assert np.abs(shares(1.0, top_p) - (expected / expected.sum()).numpy()).max() < 1e-3


def test_top_p_of_one_restricts_nothing() -> None:
    assert shares(1.0, 1.0).tolist() == shares(1.0).tolist()


def test_the_extremes_of_a_stream_never_draw_what_is_impossible() -> None:
    edges = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    impossible_ends = torch.tensor([[-torch.inf, 1.0, 0.0, -torch.inf]] * 2)
    token_N, _, _ = draw(impossible_ends, torch.ones(2, dtype=torch.float64), None, edges)
    assert token_N.tolist() == [1, 2]


def test_logits_that_are_not_finite_have_no_finite_logprob() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    bad = torch.tensor([[0.0, torch.nan], [torch.inf, 0.0], [-torch.inf, -torch.inf]])
    for temperature in (ones, ones * 0):
        _, logp_N, _ = draw(bad, temperature, None, ones * 0.5)
        assert not torch.isfinite(logp_N).any()


def test_streams_are_uniform_independent_and_can_be_entered_anywhere() -> None:
    seed_N, index_N = np.repeat(np.arange(200, dtype=np.uint64), 100), np.tile(np.arange(100, dtype=np.uint64), 200)
    drawn = uniforms(seed_N, index_N).reshape(200, 100)
    assert 0 <= drawn.min() < drawn.max() < 1
    assert np.abs(np.histogram(drawn, bins=10, range=(0, 1))[0] / 20_000 - 0.1).max() < 0.01
    assert np.abs(np.corrcoef(drawn) - np.eye(200)).max() < 0.5
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 0.03
    assert uniforms(seed_N[150:151], index_N[7:8])[0] == drawn[1, 7]
