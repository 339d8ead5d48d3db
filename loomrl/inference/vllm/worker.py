"""LoomRL's code inside vLLM's processes: weights from a staged file or a group, and whole-distribution
log-probabilities.

vLLM imports this module by name (`worker_extension_cls`) in every worker. That registers the transfer engine "shared".
"""

import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.lora.utils import parse_fine_tuned_lora_name
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.reload.layerwise import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

from loomrl.errors import LoomError
from loomrl.inference.model import skeleton_of
from loomrl.inference.vllm.reading import WeightReader
from loomrl.inference.weights.group import GroupMember, Meeting, receive
from loomrl.inference.weights.sealed import Sealed, check_weights, not_what_was_sealed, unstage

SHARED = "shared"
OWNER = "LOOMRL_ENGINE_OWNER"
"""Environment variable with the id of the process whose end must end this one."""


@dataclass
class SharedInit(WeightTransferInitInfo):  # type: ignore[misc]
    """No data: a staged file is self-describing."""


@dataclass
class SharedUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The path of the staged weights."""

    path: str


class SharedWeights(WeightTransferEngine[SharedInit, SharedUpdate]):  # type: ignore[misc]
    """Loads files of `sealed.stage`, each checked before its first tensor is applied.

    Weights that come through a group are named by the path of the file they replace.
    """

    init_info_cls = SharedInit
    update_info_cls = SharedUpdate
    supports_draft_weight_update = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._checked: tuple[str, Sealed] | None = None
        self._reader: WeightReader | None = None
        self._arriving: tuple[str, Future[Sealed]] | None = None
        self._member: GroupMember | None = None
        if OWNER in os.environ:
            _die_with(int(os.environ[OWNER]))

    def check(self, path: str) -> None:
        """A PolicyError if these weights differ from the sealed ones or do not fit the model."""
        arriving = self._arriving
        self._arriving = None
        if arriving is not None and arriving[0] == path:
            sealed = arriving[1].result()
        else:
            sealed = unstage(Path(path))
            sealed.verify()
        check_weights(self._skeleton(), sealed.weights, sealed.version)
        self._checked = (path, sealed)

    def remember(self) -> None:
        """Enable reading back; the model still has its folder's weights."""
        loader: Any = get_model_loader(self.vllm_config.load_config)
        self._reader = WeightReader(self.model, loader.get_all_weights(self.model_config, self.model))

    def read_back(self, path: str) -> None:
        """A PolicyError names the tensors for which the kernels' weights differ from the checked ones."""
        checked = self._checked
        self._checked = None
        assert checked is not None
        assert checked[0] == path
        assert self._reader is not None
        sealed = checked[1]
        wrong = self._reader.wrong(sealed.weights.items())
        if wrong:
            raise not_what_was_sealed(sealed, wrong)

    def receive(self, path: str, meeting: Meeting, rank: int) -> None:
        """Start receiving weights in place of this file, while the old ones serve."""
        coming = Future[Sealed]()
        self._arriving = path, coming

        def take() -> None:
            try:
                coming.set_result(receive(self._member_of(meeting, rank)))
            except BaseException as error:  # noqa: BLE001 - raised where the weights are asked for
                coming.set_exception(error)

        threading.Thread(target=take, daemon=True).start()

    def is_complete(self) -> bool:
        """True once everything has arrived or failed."""
        return self._arriving is None or self._arriving[1].done()

    def init_transfer_engine(self, init_info: SharedInit) -> None:
        """There is nothing to connect."""

    def start_weight_update(self) -> None:
        """Start vLLM's own reload, layer by layer into the memory that its kernels use."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Apply a staged file. (The inherited method synchronises an accelerator, and fails without one.)"""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: SharedUpdate) -> None:
        """Apply a staged file; after a failure no layer is left half-loaded, so that the next update starts afresh."""
        try:
            if self._checked is None or self._checked[0] != update_info.path:
                self.check(update_info.path)
            assert self._checked is not None
            self.model.load_weights(iter(self._checked[1].weights.items()))
        except BaseException:
            finalize_layerwise_reload(self.model, self.model_config)
            raise

    def finish_weight_update(self) -> None:
        """Return the layers to their kernels."""
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing to release."""

    def _member_of(self, meeting: Meeting, rank: int) -> GroupMember:
        """The member of this group; a new group replaces the old one."""
        if self._member is None or self._member.meeting != meeting:
            old = self._member
            self._member = None
            if old is not None:
                old.leave()
            self._member = GroupMember(meeting, rank, self.device)
        return self._member

    def _skeleton(self) -> Any:
        """The model as the learner has it, without weights."""
        return skeleton_of(self.model_config.hf_config, trust_remote_code=self.model_config.trust_remote_code)


class WholeDistribution(nn.Module):
    """Samples as vLLM does, and reports log-probabilities at the sampling temperature before top-p."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = TopKTopPSampler()

    def forward(
        self, logits: Tensor, generators: dict[int, torch.Generator], k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The tokens, and the log-probabilities that vLLM calls "processed"."""
        whole = logits.log_softmax(-1, dtype=torch.float32)
        drawn: Tensor = self.inner(logits, generators, k, p)[0]
        return drawn, whole


class WorkerExtension:
    """Methods added to vLLM's workers, called with `collective_rpc`."""

    rank: int
    model_runner: Any
    weight_transfer_engine: Any

    def loomrl_prepare(self) -> None:
        """To call before the first request."""
        self.model_runner.sampler.topk_topp_sampler = WholeDistribution()

    def loomrl_remember(self) -> None:
        """To call after the first request, and before the first update."""
        self.weight_transfer_engine.remember()

    def loomrl_check(self, path: str) -> str | None:
        """The error in a staged file, if any."""
        return _said(lambda: self.weight_transfer_engine.check(path))

    def loomrl_read_back(self, path: str) -> str | None:
        """The error in the applied weights, if any."""
        return _said(lambda: self.weight_transfer_engine.read_back(path))

    def loomrl_read_adapter(self, number: int, path: str) -> str | None:
        """The error in an adapter that vLLM has loaded from a staged file, if any."""
        manager = self.model_runner.lora_manager._adapter_manager
        return _said(lambda: read_adapter(manager, number, unstage(Path(path))))

    def loomrl_receive(self, path: str, meeting: Sequence[Any], first: int) -> None:
        """Start receiving weights through a group, in which this engine's workers have the ranks from `first` on."""
        self.weight_transfer_engine.receive(path, Meeting(*meeting), first + self.rank)

    def loomrl_is_complete(self) -> bool:
        """True once there are weights to check."""
        arrived: bool = self.weight_transfer_engine.is_complete()
        return arrived


def read_adapter(manager: Any, number: int, sealed: Sealed) -> None:
    """A PolicyError names the factors that differ from the sealed ones where the kernels have them."""
    sealed.verify()
    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    names = None if mapper is None else mapper.get_rename_mapper()
    given = {parse_fine_tuned_lora_name(name, names): name for name in sealed.weights}
    slot = manager.lora_index_to_id.index(number)
    wrong = set(sealed.weights)
    for merged, layer in manager.modules.items():
        for part, owner in enumerate(manager.packed_modules.get(merged, [merged])):
            for is_narrow, stacked in ((True, layer.lora_a_stacked), (False, layer.lora_b_stacked)):
                name = given.get((owner, is_narrow))
                if name is None:
                    continue
                kept = stacked[part][slot, 0]
                tensor = sealed.weights[name].to(kept)
                rows, columns = tensor.shape
                # of several workers each has a part, which vLLM alone knows
                if layer.tp_size > 1 or torch.equal(kept[:rows, :columns], tensor):
                    wrong.discard(name)
    if wrong:
        raise not_what_was_sealed(sealed, sorted(wrong))


def _said(call: Callable[[], None]) -> str | None:
    """LoomRL's error from a call, as text: an exception would lose its type and print a trace on its way."""
    try:
        call()
    except LoomError as error:
        return str(error)
    return None


def _die_with(owner: int) -> None:
    """End this worker and vLLM's core process as soon as the owner has ended."""
    core = os.getppid()

    def watch() -> None:
        poll = select.poll()
        poll.register(os.pidfd_open(owner), select.POLLIN)
        poll.poll()
        os.kill(core, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if SHARED not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(SHARED, SharedWeights)
