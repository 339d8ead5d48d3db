"""The code of a failure, from what a training leaves behind."""

import pytest

from loomrl.coordinator.fault import fault_in
from loomrl.coordinator.job import Code
from loomrl.errors import ClusterError, DataError, LearnerError, StoreError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LearnerError("out of memory with optimizer.micro_batch_tokens=64: CUDA out of memory."), Code.OOM),
        (MemoryError(), Code.OOM),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), Code.OOM),
        (LearnerError("the loss is nan: this step changed nothing. Lower the learning rate"), Code.CONVERGENCE),
        (LearnerError("the gradient is inf: this step changed nothing."), Code.CONVERGENCE),
        (LearnerError("a remote learner died, or its node: The actor died. Resume from it"), Code.INFRA),
        (DataError("nothing is left to train on"), Code.DATA),
        (ClusterError("no dashboard of Ray answers there"), Code.INFRA),
        (StoreError("postgresql://h/loom: connection refused"), Code.INFRA),
        (ConnectionError("reset by peer"), Code.INFRA),
        (ValueError("a bug, for instance"), Code.UNKNOWN),
    ],
)
def test_recorded_error_of_a_run_has_its_code(error: Exception, code: Code) -> None:
    fault = fault_in(repr(error), "", 1)
    assert fault.code is code
    assert str(error)[:40] in fault.message


def test_command_that_failed_before_its_run_began_says_why_in_its_log() -> None:
    log = "starting\nloomrl: DataError: data set id='d' is unknown. Known: none.\n"
    assert fault_in(None, log, 2).code is Code.DATA
    assert fault_in(None, "Traceback\nKeyError: 'x'", 1).code is Code.UNKNOWN
    assert "KeyError" in fault_in(None, "Traceback\nKeyError: 'x'", 1).message


@pytest.mark.parametrize("exit_code", [None, -9, 137, 143])
def test_process_that_was_ended_from_outside_is_no_fault_of_the_training(exit_code: int | None) -> None:
    assert fault_in(None, "step 5", exit_code).code is Code.INFRA
