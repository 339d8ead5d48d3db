"""Vision: a picture becomes tokens in the prompt, and pixels whose embeddings replace them.

Axes: M image tokens of a batch, I tiles that pictures are cut into, B rows of T tokens, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoProcessor, PreTrainedModel

from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.engine import Request, Sight
from loomrl.inference.model import config_of, sees
from loomrl.picture import to_png

Ids = NDArray[np.int32]

KNOWN = ("idefics3",)
"""Supported types of models with vision."""
REMEMBERED = 64
"""Size of the picture cache: the members of a group see the same picture."""


@dataclass(frozen=True, slots=True, eq=False)
class PicturePixels:
    """A picture as a model takes it: its tokens and its tiles."""

    ids_T: Ids
    pixels_ICHW: Tensor
    mask_IHW: Tensor


class Vision:
    """The processor of one model. Equal pictures become equal tokens and pixels in every process."""

    def __init__(self, processor: Any, image_token: int) -> None:
        self._processor = processor
        self.image_token = image_token
        """The token whose embeddings are replaced by pictures."""
        self.seen = lru_cache(REMEMBERED)(self._process)
        self._shown = lru_cache(REMEMBERED)(self._tokens)

    @cached_property
    def nothing(self) -> PicturePixels:
        """A black picture."""
        return self.seen(to_png(np.zeros((1, 1, 3), np.uint8)))

    def expand(self, ids_T: Ids, pictures: Sequence[bytes]) -> tuple[Ids, tuple[Sight, ...]]:
        """The ids with each image token replaced by the tokens of the next picture, and the pictures' positions."""
        places = np.flatnonzero(ids_T == self.image_token)
        if len(places) != len(pictures):
            raise PolicyError(f"{len(pictures)} pictures, but the chat template has places for {len(places)}.")
        parts = []
        sights = []
        length = 0
        for text_T, picture in zip(np.split(ids_T, places), [None, *pictures], strict=True):
            shown_T = text_T if picture is None else np.concatenate([self.seen(picture).ids_T, text_T[1:]])
            if picture is not None:
                sights.append(Sight(picture, length))
            parts.append(shown_T)
            length += len(shown_T)
        return np.concatenate(parts).astype(np.int32), tuple(sights)

    def places(self, sight: Sight) -> NDArray[np.int64]:
        """Positions of a picture's image tokens."""
        found: NDArray[np.int64] = sight.start + np.flatnonzero(self.seen(sight.picture).ids_T == self.image_token)
        return found

    def save(self, folder: str | Path) -> None:
        """Write the processor so that `AutoProcessor` and vLLM can load it."""
        self._processor.save_pretrained(folder)

    def _process(self, picture: bytes) -> PicturePixels:
        from PIL import Image

        try:
            image = Image.open(BytesIO(picture)).convert("RGB")
            made = self._processor.image_processor([[image]], return_tensors="pt")
            ids_T = self._shown(image.size)
        except Exception as error:  # the boundary: files come from environments
            raise PolicyError(f"a picture of {len(picture)} bytes cannot be read: {error}") from error
        return PicturePixels(ids_T, made["pixel_values"][0], made["pixel_attention_mask"][0].bool())

    def _tokens(self, size: tuple[int, int]) -> Ids:
        """The tokens of a picture of this size. Cached, because the processor takes longer for text than for pixels."""
        from PIL import Image

        blank = Image.new("RGB", size)
        token = self._processor.image_token
        ids: list[int] = self._processor(text=token, images=[blank], add_special_tokens=False)["input_ids"][0]
        return np.asarray(ids, np.int32)


def open_vision(path: str | Path, *, trust_remote_code: bool = False) -> Vision | None:
    """The vision of the model in a folder; None if it reads text only."""
    config = config_of(path, trust_remote_code=trust_remote_code)
    if not sees(config):
        return None
    if config.model_type not in KNOWN:
        raise ConfigError(f"model path={str(path)!r}: {config.model_type!r} sees in another way than {KNOWN}.")
    try:
        processor = AutoProcessor.from_pretrained(path, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # the boundary
        raise ConfigError(
            f"model path={str(path)!r}: its processor of pictures cannot be opened: {error}. Pictures need Pillow: "
            "pip install 'loomrl[vision]'; the folder needs processor_config.json or preprocessor_config.json."
        ) from error
    return Vision(processor, int(config.image_token_id))


def check_sights(request: Request, vision: Vision | None) -> None:
    """A PolicyError if a request has pictures that the model cannot see, or wrong positions for them."""
    if not request.sights:
        return
    if vision is None:
        raise PolicyError(
            "the request has pictures, and this engine shows its model none: choose a model that sees, and "
            "engine.kind=torch or vllm."
        )
    for sight in request.sights:
        ids_T = vision.seen(sight.picture).ids_T
        if not np.array_equal(request.prompt_T[sight.start : sight.start + len(ids_T)], ids_T):
            raise PolicyError(f"at token {sight.start} of the prompt is not what stands for its picture.")


def embed_with_pictures(
    model: PreTrainedModel, ids_BT: Tensor, places_2M: tuple[Tensor, Tensor], seen: Sequence[PicturePixels]
) -> Tensor:
    """Embeddings [B, T, H] of the ids, with the pictures' embeddings at these rows and columns.

    By position, not by id: an image token that a policy sampled is an ordinary token.
    """
    embedded_BTH: Tensor = model.get_input_embeddings()(ids_BT)
    features_MH = features(model, seen)
    row_M, column_M = places_2M
    if len(features_MH) != len(row_M):
        raise PolicyError(f"{len(seen)} pictures make {len(features_MH)} embeddings for {len(row_M)} image tokens.")
    return embedded_BTH.index_put((row_M, column_M), features_MH.to(embedded_BTH.dtype))


def features(model: Any, seen: Sequence[PicturePixels]) -> Tensor:
    """The embeddings of pictures: one per image token, in order."""
    pixels_1ICHW = torch.cat([one.pixels_ICHW for one in seen])[None].to(model.device)
    mask_1IHW = torch.cat([one.mask_IHW for one in seen])[None].to(model.device)
    made: Tensor = model.get_image_features(pixels_1ICHW, mask_1IHW, return_dict=True).pooler_output
    return made.flatten(0, 1)
