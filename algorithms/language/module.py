"""The RLModule of a token policy: a causal language model, and a value head if the algorithm needs one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from typing_extensions import override

from loomrl.algorithms.language.flat import use_flat
from loomrl.algorithms.language.layers import compile_layers, recompute_layers
from loomrl.algorithms.language.lora import attach, merge_adapter
from loomrl.algorithms.language.precision import Dtypes, as_computed, hold_in_float32, release
from loomrl.algorithms.language.resolved import origin_of
from loomrl.algorithms.language.score import Scores, score
from loomrl.config import LanguageModel
from loomrl.errors import ConfigError
from loomrl.inference.gguf import model_folder
from loomrl.inference.model import open_model, open_tokenizer
from loomrl.inference.vision import Vision, embed_with_pictures, features, open_vision


class LanguageModule(TorchRLModule):
    """Scores given tokens: log-probability, entropy and value at each chosen position, in one forward pass.

    It is in evaluation mode, like the engine's model: no dropout, and batch norm with fixed statistics. Only the
    training on demonstrations differs (`imitating`).
    """

    lm: PreTrainedModel
    errors_X: Tensor
    """Each critic's usual squared error, for every value."""

    @override
    def setup(self) -> None:
        """Load the first weights and attach the configured additions."""
        settings: LanguageModel = self.model_config["model"]
        # Asked for here, where the learner is: the driver's copy may be on another host.
        origin = origin_of(settings, artifact_url=self.model_config["artifact_url"], built=self.model_config["built"])
        trusts = settings.trust_remote_code
        self.lm = open_model(origin, dtype=settings.dtype, trust_remote_code=trusts)
        self.vision = open_vision(origin, trust_remote_code=trusts)
        _refuse_altered_logits(self.lm, origin)
        self.reads_flat = use_flat(self.lm)
        """True if its attention takes flat rows."""
        if self.model_config.get("compiled", False):
            if self.vision is not None:
                raise ConfigError("learners.compile=true and a model that sees: use learners.compile=false.")
            compile_layers(self.lm)
        if settings.recompute != "none":
            recompute_layers(self.lm, settings.recompute)
        self.computed: Dtypes = {}
        """Parameters of the model that are float32 but compute in another format."""
        if settings.lora is not None:
            attach(self.lm, settings.lora)
        elif settings.dtype != "float32":
            self.computed = hold_in_float32(self.lm)
        values = self.model_config["values"]
        critics = self.model_config.get("critics", 1)
        self.value = _zeros(self.lm, values) if values else None
        self.doubt: nn.Linear | None = None
        """log σ² of every critic's every value, beside its usual error; None for a single critic."""
        if critics > 1:
            self.doubt = _zeros(self.lm, values)
            self.register_buffer("errors_X", torch.ones(values))
        self.eval()

    @override
    def forward_train(self, batch: Mapping[str, Any], **_: Any) -> Scores:
        """Keeps the module's mode; RLlib's own turns dropout on with every pass."""
        return self._forward_train(batch)

    @override
    def _forward(self, batch: Mapping[str, Any], **_: Any) -> Scores:
        if self.vision is not None:
            batch = {**batch, "embeds_BTH": embed_pictures(self.lm, self.vision, batch)}
        temperature = self.model_config["temperature"]
        return score(self.lm, batch, temperature=temperature, value=self.value, doubt=self.doubt)

    @override
    def _forward_train(self, batch: Mapping[str, Any], **_: Any) -> Scores:
        return self._forward(batch)

    @override
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The weights as NumPy arrays if they are local and NumPy supports their type (else use `whole_state`)."""
        if any(isinstance(p, DTensor) or p.dtype is torch.bfloat16 for p in self.parameters()):
            return {}
        return super().get_state(*args, **kwargs)

    def merge_weights(self) -> dict[str, Tensor]:
        """The language model's weights for an engine: low-rank additions merged, names as in the original model."""
        if self.model_config["model"].lora is None:
            return as_computed(self.lm.state_dict(), self.computed)
        return merge_adapter(self.lm)


def open_teacher(module: LanguageModule, teacher: str) -> LanguageModule:
    """The model of this name that speaks the same tokens, frozen, without heads of its own."""
    settings = module.model_config["model"]
    artifact_url = module.model_config["artifact_url"]
    folder = model_folder(teacher, artifact_url)
    path = origin_of(settings, artifact_url=artifact_url, built=module.model_config["built"])
    theirs, ours = (open_tokenizer(each, trust_remote_code=settings.trust_remote_code) for each in (folder, path))
    if theirs.get_vocab() != ours.get_vocab():
        raise ConfigError(
            f"algorithm.kl.teacher={teacher!r} has another vocabulary than the policy, whose tokens it cannot judge. "
            "Choose a teacher of the same family."
        )
    alone = settings.model_copy(update={"path": str(folder), "build": None, "lora": None, "recompute": "none"})
    made = LanguageModule(
        observation_space=module.observation_space,
        action_space=module.action_space,
        model_config={**module.model_config, "model": alone, "values": 0, "critics": 1, "compiled": False},
    )
    made.requires_grad_(False)
    release(made.lm, made.computed)
    return made


def _zeros(lm: PreTrainedModel, outputs: int) -> nn.Linear:
    """A head on the last hidden states whose every output begins at 0."""
    head = nn.Linear(lm.config.get_text_config().hidden_size, outputs)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def _refuse_altered_logits(lm: PreTrainedModel, origin: Path) -> None:
    """Refuse models that change their logits after the output embedding, from which ours are computed."""
    probe = torch.arange(4)[None] % lm.config.get_text_config().vocab_size
    with torch.no_grad():
        theirs = lm(input_ids=probe, use_cache=False).logits
        ours = lm.get_output_embeddings()(lm.base_model(input_ids=probe, use_cache=False).last_hidden_state)
    if not torch.allclose(theirs, ours, atol=1e-3, rtol=1e-3):
        raise ConfigError(
            f"model.path={str(origin)!r}: {type(lm).__name__} changes its logits behind the output embedding "
            "(scaling or capping), which the learner does not follow. Choose a model without it."
        )


@contextmanager
def imitating(module: nn.Module) -> Iterator[None]:
    """Enable dropout in this context, which reduces memorisation of demonstrations."""
    module.train()
    try:
        yield
    finally:
        module.eval()


def embed_pictures(lm: PreTrainedModel, vision: Vision, batch: Mapping[str, Any]) -> Tensor:
    """Embeddings [B, T, H] of a packed micro-batch.

    Without a picture the vision tower still runs on a blank one: learners exchange gradients of all weights at once,
    and each of them must have some.
    """
    ids_BT = batch["ids_BT"]
    pictures = batch["pictures"]
    if pictures:
        row_M, column_M = torch.nonzero((ids_BT == vision.image_token) & batch["shown_BT"], as_tuple=True)
        return embed_with_pictures(lm, ids_BT, (row_M, column_M), [vision.seen(picture) for picture in pictures])
    words_BTH: Tensor = lm.get_input_embeddings()(ids_BT)
    return words_BTH + 0 * features(lm, [vision.nothing]).sum() if torch.is_grad_enabled() else words_BTH
