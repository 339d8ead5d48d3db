"""Every environment that comes with LoomRL keeps what the checker asks of environments."""

import pytest

from loomrl.experiments.check_envs import check_all
from loomrl.gym.catalogue import names

NEED_SETTINGS = {"OpenEnv": "Set servers", "Verifiers": "Set modules"}
"""What they adapt lies elsewhere: their own tests check them, with servers and modules."""


LONG = {"ReasoningGym"}


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names()]
)
def test_an_environment_keeps_what_it_promises(name: str) -> None:
    checked = check_all([name], may_lack=True)
    if name in NEED_SETTINGS:
        assert NEED_SETTINGS[name] in checked.left_out[name]
    else:
        assert [report.environment for report in checked.reports] == [name], checked.left_out
        faults = [check for report in checked.reports for check in report.checks if not check.passed]
        assert checked.passed, "\n".join(f"{fault.name}: {fault.detail}" for fault in faults)
