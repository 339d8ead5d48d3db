"""Servers for tests: vLLM's own, and a small one that speaks SGLang's protocol over a real model.

SGLang itself needs a GPU build. What stands in for it is written from its documented schema: it refuses fields that
SGLang does not have, samples from a model for real, loads weights from disk for real, and stops and aborts for real.
"""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
import uvicorn
from safetensors.torch import load_file
from sample_models import VOCABULARY, tiny_tokenizer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from loomrl.inference.model import save_model

MODEL = "tiny"
POSITIONS = 1024


def served_model(seed: int = 0) -> PreTrainedModel:
    """A Llama whose heads are as wide as vLLM's kernels need them."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=POSITIONS, initializer_range=0.3,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def model_folder(folder: Path, seed: int = 0) -> Path:
    """The same as a folder, with a tokenizer."""
    save_model(served_model(seed), tiny_tokenizer(), folder)
    return folder


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def vllm_server(folder: Path, log: Path, *, positions: int = POSITIONS, **environment: str) -> Iterator[str]:
    """The URL of a real vLLM server on this model, in its development mode."""
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
        "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--max-model-len", str(positions), "--max-num-seqs", "32", "--enforce-eager", "--enable-scale-out",
        "--logprobs-mode", "processed_logprobs",
    ]  # fmt: skip
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_SERVER_DEV_MODE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, env=os.environ | quiet | environment, stdout=said, stderr=said, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 240
        while not _answers(f"http://127.0.0.1:{port}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vLLM did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.3)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """The URL of an application that is served by a thread."""
    config = uvicorn.Config(app, host="127.0.0.1", port=free_port(), log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{config.port}/v1"
    finally:
        server.should_exit = True
        thread.join(10)


GENERATE = {
    "input_ids", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob",
    "return_text_in_logprobs", "stream", "rid",
}  # fmt: skip
SAMPLING = {
    "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "sampling_seed", "stop", "stop_token_ids", "ignore_eos",
    "skip_special_tokens", "no_stop_trim", "n",
}  # fmt: skip
UPDATE = {
    "model_path", "load_format", "abort_all_requests", "weight_version", "is_async", "torch_empty_cache", "keep_pause",
    "recapture_cuda_graph", "token_step", "flush_cache", "manifest",
}  # fmt: skip


class SglangProtocol:
    """SGLang's routes over a real model. Log-probabilities are those after temperature, as SGLang's are by default."""

    def __init__(self, model: PreTrainedModel, *, tempered: bool = True) -> None:
        self.model = model
        self.tempered = tempered
        self.spans = True
        self.fail_updates = 0
        self.updates: list[str] = []
        self.pace_s = 0.0
        self._label = "default"
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._open: set[int] = set()
        self._aborted: set[int] = set()
        self._count = 0

    def app(self) -> Starlette:
        """All routes."""
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/model_info", self._info),
                Route("/generate", self._generate, methods=["POST"]),
                Route("/pause_generation", self._pause, methods=["POST"]),
                Route("/continue_generation", self._continue, methods=["POST"]),
                Route("/update_weights_from_disk", self._update, methods=["POST"]),
            ]
        )

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "max_model_len": POSITIONS}]})

    async def _info(self, request: Request) -> Response:
        return JSONResponse({"model_path": "…", "is_generation": True, "weight_version": self._label})

    async def _pause(self, request: Request) -> Response:
        assert (await request.json())["mode"] == "abort"
        self._goes_on.clear()
        self._aborted |= self._open
        while self._open:  # noqa: ASYNC110 - they end at their next token
            await asyncio.sleep(0.001)
        return JSONResponse({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, request: Request) -> Response:
        await request.json()
        self._goes_on.set()
        return JSONResponse({"message": "Generation continued successfully.", "status": "ok"})

    async def _update(self, request: Request) -> Response:
        body = await request.json()
        assert set(body) <= UPDATE, set(body) - UPDATE
        done = {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}
        if self.fail_updates or self._open:
            self.fail_updates -= 1
            return JSONResponse(done | {"success": False, "message": "Failed to update weights: out of memory"}, 400)
        self.model.load_state_dict(load_file(Path(body["model_path"]) / "model.safetensors"))
        self._label = body["weight_version"]
        self.updates.append(self._label)
        return JSONResponse(done)

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        wrong = (set(body) - GENERATE) | (set(body["sampling_params"]) - SAMPLING)
        if wrong:
            return JSONResponse({"error": {"message": f"unexpected fields: {sorted(wrong)}"}}, 400)
        await self._goes_on.wait()
        self._count += 1
        number = self._count
        self._open.add(number)
        try:
            return JSONResponse(await self._sample(number, body, request.is_disconnected))
        finally:
            self._open.discard(number)
            self._aborted.discard(number)

    async def _sample(
        self, number: int, body: dict[str, Any], nobody_waits: Callable[[], Awaitable[bool]]
    ) -> dict[str, Any]:
        sampling, ids = body["sampling_params"], list(body["input_ids"])
        generator = torch.Generator().manual_seed(sampling["sampling_seed"] % 2**63)
        pairs: list[list[Any]] = []
        top: list[list[Any]] = []
        reason = "length"
        while len(pairs) < sampling["max_new_tokens"]:
            if number in self._aborted or await nobody_waits():
                reason = "abort"
                break
            logp_V, drawn = self._draw(ids, sampling, generator)
            pairs.append([float(logp_V[drawn]), drawn, None])
            best = logp_V.topk(body.get("top_logprobs_num", 1))
            top.append([[float(p), int(id), None] for p, id in zip(*best, strict=True)])
            ids.append(drawn)
            if drawn in sampling["stop_token_ids"]:
                reason = "stop"
                break
            await asyncio.sleep(self.pace_s)
        told = {
            "id": str(number),
            "finish_reason": {"type": reason},
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(pairs),
            "output_token_logprobs": pairs,
            "weight_version": self._label,
        }
        if self.spans:
            told["weight_versions"] = [{"version": self._label, "start": 0, "end": len(pairs)}]
        if "top_logprobs_num" in body:
            told["output_top_logprobs"] = top
        return {"text": "", "output_ids": [pair[1] for pair in pairs], "meta_info": told}

    @torch.inference_mode()
    def _draw(self, ids: list[int], sampling: dict[str, Any], generator: torch.Generator) -> tuple[torch.Tensor, int]:
        logits_V = self.model(torch.tensor([ids])).logits[0, -1].float()
        temperature = sampling["temperature"] or 1.0
        p_V = (logits_V / temperature).softmax(-1)
        if sampling["temperature"] == 0:
            drawn = int(logits_V.argmax())
        else:
            ordered, at = p_V.sort(descending=True)
            kept = ordered.masked_fill(ordered.cumsum(0) - ordered >= sampling["top_p"], 0.0)
            drawn = int(at[torch.multinomial(kept, 1, generator=generator)])
        return (p_V.log() if self.tempered else logits_V.log_softmax(-1)), drawn


def scripted(answer: Callable[[Request], Awaitable[Response]], *, models: Any = None) -> Starlette:
    """A server that lists a model and answers everything else as told."""

    async def listed(request: Request) -> Response:
        return JSONResponse({"data": [{"id": MODEL}]} if models is None else models)

    routes = [Route("/v1/models", listed), Route("/{rest:path}", answer, methods=["GET", "POST"])]
    return Starlette(routes=routes)
