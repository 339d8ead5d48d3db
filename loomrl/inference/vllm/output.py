"""vLLM's outputs, read: the version of each token, the likeliest tokens; and the parameters that ask for them.

Axes: T tokens, K likeliest tokens at a position.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from loomrl.inference.engine import Request, Top
from loomrl.inference.vision import Vision
from loomrl.picture import digest


class Labels:
    """The version of each token of one request.

    vLLM tells it with the last output only; before that, its own record of the request has it.
    """

    def __init__(self, llm: Any, name: str, version: int | None = None) -> None:
        """With a version, of an adapter, every token has it."""
        self._version = version
        self._processor = llm.output_processor
        self._name = name
        self._starts: list[tuple[str, int]] | None = None
        self._taken = 0

    def take(self, found: Any) -> NDArray[np.int32]:
        """The versions of the tokens of the next output."""
        end = self._taken + len(found.token_ids)
        versions_T = np.empty(len(found.token_ids), np.int32)
        for version, start in self._version_starts(found):
            versions_T[max(0, start - self._taken) :] = int(version)
        self._taken = end
        return versions_T

    def _version_starts(self, found: Any) -> list[tuple[str, int]]:
        """Versions with the index of their first token; the list grows with the request."""
        if self._version is not None:
            return [(str(self._version), 0)]
        if found.weight_versions is not None:
            return [(span.version, span.start) for span in found.weight_versions]
        if self._starts is None:
            (key,) = self._processor.external_req_ids[self._name]
            self._starts = self._processor.request_states[key].weight_version_starts
        return self._starts


def sampling_params(request: Request, *, room: int, whole: bool, grammar: str | None = None) -> Any:
    """vLLM's parameters for a request; `whole` asks for one output at the end, `grammar` is that of its form."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

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
        **({} if request.odds is None else request.odds.changes),
        structured_outputs=None if grammar is None else StructuredOutputsParams(grammar=grammar),
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


ARGUMENTS = {"skip_tokenizer_init": False, "mm_processor_cache_gb": 0}
"""Extra arguments: vLLM measures its memory with a picture from its own processor, which needs a tokenizer.

Nothing is cached before the engine core: every picture is handed over by us.
"""


def prompt_of(request: Request, vision: Vision | None) -> Any:
    """The input of `AsyncLLM.generate`."""
    from vllm.inputs.engine import mm_input, tokens_input

    ids = request.prompt_T.tolist()
    if vision is None or not request.sights:
        return tokens_input(ids)
    return mm_input(
        ids,
        mm_kwargs=_pixels(request, vision),
        mm_hashes={"image": [digest(sight.picture) for sight in request.sights]},
        mm_placeholders={
            "image": [_place(sight.start, vision.seen(sight.picture).ids_T, vision) for sight in request.sights]
        },
    )


def _pixels(request: Request, vision: Vision) -> Any:
    from transformers import BatchFeature
    from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems

    seen = [vision.seen(sight.picture) for sight in request.sights]
    tiles = torch.tensor([len(one.pixels_ICHW) for one in seen])
    pixels = {
        "pixel_values": torch.cat([one.pixels_ICHW for one in seen]),
        "pixel_attention_mask": torch.cat([one.mask_IHW for one in seen]),
        "num_patches": tiles,
    }
    fields = {
        "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", tiles),
        "pixel_attention_mask": MultiModalFieldConfig.flat_from_sizes("image", tiles),
        "num_patches": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
    }
    return MultiModalKwargsItems.from_hf_inputs(BatchFeature(pixels), fields)


def _place(start: int, ids_T: Any, vision: Vision) -> Any:
    from vllm.multimodal.inputs import PlaceholderRange

    return PlaceholderRange(start, len(ids_T), torch.from_numpy(ids_T == vision.image_token))
