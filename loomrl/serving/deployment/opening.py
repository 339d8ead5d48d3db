"""Opens a served policy in a replica: the torch engine, vLLM, a remote server, or a control policy."""

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from loomrl.config import OpenAIServing, Sampling, ServingEngine, TorchServing
from loomrl.errors import ConfigError
from loomrl.files import scratch
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from loomrl.serving.policy import ServedPolicy

if TYPE_CHECKING:
    from loomrl.inference.engine import Engine
    from loomrl.inference.open import Opening
    from loomrl.inference.policy import Voice
    from loomrl.serving.speech import LanguageServedPolicy

CONTEXT = 4096
"""Maximum tokens of a conversation, for a model that no recorded run made."""
SAMPLING = Sampling(max_tokens=512)
SLOTS = 64


async def open_policy(
    source: PolicySource, files: OpenFolder, engine: ServingEngine, *, gpus: float = 0.0
) -> ServedPolicy:
    """The policy in these files."""
    if source.kind == "control":
        from loomrl.serving.acting import ControlServedPolicy

        return await asyncio.to_thread(ControlServedPolicy.open, files.path, version=files.version, number=files.number)
    return await open_speech(source, files, engine, gpus=gpus)


async def open_speech(
    source: PolicySource, files: OpenFolder, choice: ServingEngine, *, gpus: float = 0.0
) -> "LanguageServedPolicy":
    """The language policy in these files; a ConfigError if it cannot be opened."""
    from loomrl.serving.speech import LanguageServedPolicy

    engine = await open_language_engine(source, files, choice, gpus=gpus)
    return LanguageServedPolicy(await _open_voice(source, files, choice, engine), version=files.version)


async def open_adapter_policy(
    source: PolicySource, files: OpenFolder, choice: ServingEngine, engine: "Engine", *, name: str
) -> "LanguageServedPolicy":
    """The language policy that the engine holds as the adapter of this name."""
    from loomrl.serving.speech import LanguageServedPolicy

    voice = replace(await _open_voice(source, files, choice, engine), adapter=name)
    return LanguageServedPolicy(voice, version=files.version, number=files.number)


async def open_language_engine(
    source: PolicySource, files: OpenFolder, choice: ServingEngine, *, gpus: float = 0.0
) -> "Engine":
    """An engine with the model in these files; a ConfigError if it cannot be opened."""
    from loomrl.inference.open import Opening

    is_torch = isinstance(choice, TorchServing)
    opening = Opening(
        origin=files.path,
        context=_context(source, files, choice),
        slots=choice.slots if isinstance(choice, TorchServing) else SLOTS,
        dtype=choice.dtype if isinstance(choice, TorchServing) else "bfloat16" if gpus else "float32",
        device="cuda" if gpus and is_torch else "cpu",
        trust_remote_code=source.trust_remote_code or choice.trust_remote_code,
        version=files.number,
    )
    # vLLM and a server choose their device by themselves; only torch is told
    return await _open_engine(choice, opening, gpus=gpus)


async def _open_voice(source: PolicySource, files: OpenFolder, choice: ServingEngine, engine: "Engine") -> "Voice":
    from loomrl.inference.chat import open_chat
    from loomrl.inference.policy import Voice

    trusts = source.trust_remote_code or choice.trust_remote_code
    chat = await asyncio.to_thread(open_chat, files.path, trust_remote_code=trusts)
    return Voice(engine, chat, source.sampling or SAMPLING, _context(source, files, choice))


def _context(source: PolicySource, files: OpenFolder, choice: ServingEngine) -> int:
    from loomrl.inference.open import longest_context

    trusts = source.trust_remote_code or choice.trust_remote_code
    return longest_context(files.path, source.context or CONTEXT, trust_remote_code=trusts)


async def _open_engine(choice: ServingEngine, opening: "Opening", *, gpus: float) -> "Engine":
    from loomrl.config import OpenAIEngineConfig, TorchEngineConfig, VllmEngineConfig

    if isinstance(choice, TorchServing):
        import torch

        from loomrl.inference.open import fitted, open_engine

        torch.set_num_threads(choice.threads)
        if gpus and not torch.cuda.is_available():
            raise ConfigError(f"replicas.gpus={gpus:g}: this machine has no GPU that torch can use.")
        return await asyncio.to_thread(open_engine, TorchEngineConfig(), fitted(opening))
    if isinstance(choice, OpenAIServing):
        from loomrl.inference.remote.engine import OpenAIEngine

        remote = OpenAIEngineConfig(
            url=choice.url, model=choice.model, key_variable=choice.key_variable, timeout_s=choice.timeout_s
        )
        trusts = opening.trust_remote_code
        return OpenAIEngine(remote, origin=opening.origin, context=opening.context, trust_remote_code=trusts)
    from loomrl.inference.vllm.engine import VllmEngine

    vllm = VllmEngineConfig(
        gpus=gpus, memory_gb=choice.memory_gb, start_timeout_s=choice.start_timeout_s, settings=choice.settings
    )
    log = scratch("vllm") / f"log-{os.getpid()}"
    return await VllmEngine.open(vllm, opening, log=log)
