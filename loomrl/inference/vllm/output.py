"""vLLM's outputs, read: the version of each token, the likeliest tokens; and the parameters that ask for them.

Axes: T tokens, K likeliest tokens at a position.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.inference.engine import Request, Top


class Labels:
    """The version of each token of one request.

    vLLM tells it with the last output only; before that, its own record of the request has it.
    """

    def __init__(self, llm: Any, name: str) -> None:
        self._processor = llm.output_processor
        self._name = name
        self._starts: list[tuple[str, int]] | None = None
        self._taken = 0

    def take(self, found: Any) -> NDArray[np.int32]:
        """The versions of the tokens of the next output."""
        end = self._taken + len(found.token_ids)
        versions_T = np.empty(len(found.token_ids), np.int32)
        for version, start in self._known(found):
            versions_T[max(0, start - self._taken) :] = int(version)
        self._taken = end
        return versions_T

    def _known(self, found: Any) -> list[tuple[str, int]]:
        """Versions with the index of their first token; the list grows with the request."""
        if found.weight_versions is not None:
            return [(span.version, span.start) for span in found.weight_versions]
        if self._starts is None:
            (key,) = self._processor.external_req_ids[self._name]
            self._starts = self._processor.request_states[key].weight_version_starts
        return self._starts


def sampling_params(request: Request, *, room: int, whole: bool) -> Any:
    """vLLM's parameters for a request; `whole` asks for one output at the end."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        max_tokens=min(request.sampling.max_tokens, room),
        seed=request.seed,
        stop_token_ids=sorted(request.stop),
        ignore_eos=True,
        detokenize=False,
        logprobs=request.top,
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY if whole else RequestOutputKind.DELTA,
    )


def top_of(told: Any, count: int) -> Top | None:
    """The likeliest tokens of flat log-probabilities.

    The sampled token is first at each position, and again among the likeliest; only once in outputs that vLLM joined
    for a slow reader. Ranks tell in both.
    """
    if not count:
        return None
    by_rank = [
        {told.ranks[at]: at for at in range(start, end)}
        for start, end in zip(told.start_indices, told.end_indices, strict=True)
    ]
    at_TK = np.array([[one[rank] for rank in range(1, count + 1)] for one in by_rank], np.intp).reshape(-1, count)
    return Top(np.array(told.token_ids, np.int32)[at_TK], np.array(told.logprobs, np.float32)[at_TK])


def is_finite(logprobs_T: NDArray[np.float32]) -> bool:
    """False if the weights' logits were not numbers."""
    return bool(np.isfinite(logprobs_T).all())
