"""Opens a served policy in a replica: the torch engine, vLLM, a remote server, or a control policy."""

import asyncio
import os
from typing import TYPE_CHECKING

from loomrl.config import OpenAIServing, Sampling, ServingEngine, TorchServing, VllmServing
from loomrl.errors import ConfigError
from loomrl.files import scratch
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from loomrl.serving.policy import ServedPolicy

if TYPE_CHECKING:
    from loomrl.inference.engine import Engine
    from loomrl.inference.open import Opening
    from loomrl.serving.speech import Speech

CONTEXT = 4096
"""Maximum tokens of a conversation, for a model that no recorded run made."""
SAMPLING = Sampling(max_tokens=512)
SLOTS = 64


async def open_policy(
    source: PolicySource, files: OpenFolder, engine: ServingEngine, *, gpus: float = 0.0
) -> ServedPolicy:
    """The policy in these files."""
    if source.kind == "control":
        from loomrl.serving.acting import Acting

        return await asyncio.to_thread(Acting.open, files.path, version=files.version, number=files.number)
    if isinstance(engine, TorchServing):
        return await asyncio.to_thread(_torch, source, files, engine, gpus)
    return await _other(source, files, engine, gpus)


def _torch(source: PolicySource, files: OpenFolder, engine: TorchServing, gpus: float) -> "Speech":
    import torch

    from loomrl.serving.speech import Setting, open_speech

    torch.set_num_threads(engine.threads)
    if gpus and not torch.cuda.is_available():
        raise ConfigError(f"replicas.gpus={gpus:g}: this machine has no GPU that torch can use.")
    setting = Setting(
        slots=engine.slots,
        context=source.context or CONTEXT,
        dtype=engine.dtype,
        trust_remote_code=source.trust_remote_code or engine.trust_remote_code,
        device="cuda" if gpus else "cpu",
        sampling=source.sampling or SAMPLING,
    )
    return open_speech(files.path, setting, version=files.version, number=files.number)


async def _other(source: PolicySource, files: OpenFolder, choice: VllmServing | OpenAIServing, gpus: float) -> "Speech":
    from loomrl.inference.chat import Chat
    from loomrl.inference.model import config_of, open_tokenizer
    from loomrl.inference.open import Opening
    from loomrl.inference.policy import Voice
    from loomrl.inference.vision import open_vision
    from loomrl.serving.speech import Speech

    trusts = source.trust_remote_code or choice.trust_remote_code
    config = config_of(files.path, trust_remote_code=trusts)
    known = getattr(config.get_text_config(), "max_position_embeddings", CONTEXT)
    context = min(source.context or CONTEXT, int(known))
    opening = Opening(
        origin=files.path,
        context=context,
        slots=SLOTS,
        dtype="bfloat16" if gpus else "float32",
        trust_remote_code=trusts,
    )
    engine = await _engine(choice, files, opening, gpus=gpus)
    vision = open_vision(files.path, trust_remote_code=trusts)
    chat = Chat(open_tokenizer(files.path, trust_remote_code=trusts), vision)
    return Speech(Voice(engine, chat, source.sampling or SAMPLING, context), version=files.version)


async def _engine(
    choice: VllmServing | OpenAIServing, files: OpenFolder, opening: "Opening", *, gpus: float
) -> "Engine":
    from loomrl.config import OpenAIEngineConfig, VllmEngineConfig

    if isinstance(choice, OpenAIServing):
        from loomrl.inference.remote.engine import OpenAIEngine

        remote = OpenAIEngineConfig(
            url=choice.url, model=choice.model, key_variable=choice.key_variable, timeout_s=choice.timeout_s
        )
        return OpenAIEngine(
            remote,
            origin=opening.origin,
            context=opening.context,
            trust_remote_code=opening.trust_remote_code,
        )
    from loomrl.inference.vllm.engine import VllmEngine

    vllm = VllmEngineConfig(
        gpus=gpus, memory_gb=choice.memory_gb, start_timeout_s=choice.start_timeout_s, settings=choice.settings
    )
    log = scratch("vllm") / f"log-{os.getpid()}"
    return await VllmEngine.open(vllm, opening, log=log, version=files.number)
