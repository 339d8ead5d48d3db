"""Pictures for vLLM's engine: already tokens and pixels, so that both engines see the same."""

from typing import Any

import torch

from loomrl.inference.engine import Request
from loomrl.inference.vision import Vision
from loomrl.picture import digest

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
