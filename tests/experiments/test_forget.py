"""People taken out of weights: the result equals a run that never saw them, byte for byte, and nothing else is left."""

import shutil
from pathlib import Path

import pytest

from loomrl.store import open_store
from loomrl.store.endpoints import show_endpoint
from loomrl.store.runs import POLICIES
from loomrl.types import Stage
from tests.algorithms.language_support import QUIET
from tests.experiments.forget_support import bytes_of, forget, frozen, learn, produce
from tests.feedback.served_support import ENDPOINT, serve, url

pytestmark = [pytest.mark.system, QUIET]
ADA = (5, 17, 30)
"""Her sessions."""


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which version r/0 was served to Ada, Bob and others."""
    folder = tmp_path_factory.mktemp("production")
    produce(folder, of={"ada": ADA, "bob": (6, 9)})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "kto", "raft", "rloo"])
def test_weights_after_forgetting_equal_those_of_a_run_that_never_saw_the_person(
    kind: str, production: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    never = Path(shutil.copytree(production, tmp_path / "never"))
    present = learn(folder, kind, frozen(folder), run="present")
    with_her = bytes_of(folder, present)
    with open_store(url(folder)) as db:
        serve(db, present)
        sessions = [f"s-r-0-0-{at // 2}-{at % 2}" for at in ADA]
    done = forget(folder, "ada")
    reference = learn(never, kind, frozen(never, without=sessions), run="reference")
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
        assert stable.startswith("present-without-")
        assert POLICIES.require(db, present).stage is Stage.FORGOTTEN
    assert bytes_of(folder, stable) == bytes_of(never, reference) != with_her
    assert all(done.certificate["certificate"]["checks"].values())
