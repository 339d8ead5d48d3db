"""Adapters that a vLLM engine holds beside its base, as files that vLLM's own LoRA requests name."""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomrl.inference.model import config_of, open_model, skeleton_of
from loomrl.inference.open import Opening
from loomrl.inference.weights.adapter import NARROW, WIDEN, Factors, factors_of, refuse_other_base
from loomrl.inference.weights.sealed import Sealed, identify, own_staging_folder, stage


@dataclass(frozen=True, slots=True)
class HeldBase:
    """The weights that adapters are additions to: their identity, and the model without them."""

    identity: str
    skeleton: Any

    @classmethod
    def of(cls, opening: Opening) -> "HeldBase":
        """The base in a folder; its weights are read once, and not kept."""
        trusts = opening.trust_remote_code
        identity = identify(open_model(opening.origin, dtype="bfloat16", trust_remote_code=trusts).state_dict().items())
        return cls(identity, skeleton_of(config_of(opening.origin, trust_remote_code=trusts), trust_remote_code=trusts))

    def check(self, sealed: Sealed) -> Mapping[str, Factors]:
        """The additions by layer; a PolicyError if they belong to another base, or do not fit."""
        refuse_other_base(sealed, self.identity)
        return factors_of(self.skeleton, sealed)


@dataclass(slots=True)
class HeldAdapter:
    """An adapter in a folder, from which vLLM loads it, also later if it has to make room meanwhile."""

    version: int
    file: Path
    request: Any
    """vLLM's `LoRARequest`."""
    open: int = 0
    """Requests that have begun with it."""

    @classmethod
    def stage(cls, sealed: Sealed, rank: int, number: int) -> "HeldAdapter":
        """The adapter's files, as vLLM reads them."""
        from vllm.lora.request import LoRARequest

        folder = own_staging_folder(f"loomrl-adapter-{uuid.uuid4().hex}")
        owners = {name.removesuffix(NARROW).removesuffix(WIDEN) for name in sealed.weights}
        settings = {"r": rank, "lora_alpha": rank, "target_modules": sorted({o.rpartition(".")[2] for o in owners})}
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **settings}))
        file = stage(sealed, folder / "adapter_model.safetensors")
        return cls(sealed.version, file, LoRARequest(folder.name, number, str(folder)))

    @contextmanager
    def count_open(self) -> Iterator[None]:
        """Count a request until the block ends."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
