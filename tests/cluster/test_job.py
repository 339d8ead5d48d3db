"""Jobs on a real cluster that wants a token, and whose Python has no LoomRL. Quick ones: `test_submit.py`."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loomrl.experiments.shipped import resolve
from loomrl.store import open_store
from loomrl.store.runs import RUNS, load_experiment
from tests.cluster.cluster_support import AUTH, ROOT, TOKEN, bare_python, cli, environment, ray_of_its_own

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]
LANGUAGE = (
    *("language/math_tiny", "seed=5", "train.updates=1", "algorithm.warm_start.steps=0", "evaluation.episodes=4"),
    *("rollout.groups_per_update=2", "rollout.group_size=2", "rollout.runners=1", "rollout.concurrency=4"),
    "placement.runner.resources={rollout: 1}",
)
PLACED = ("rollout.runners=1", "placement.runner.resources={rollout: 1}")
CONTROL = ("control/cartpole", "train.steps=600", "train.checkpoint_every=600", "evaluation.episodes=2")


@dataclass
class Site:
    url: str
    address: str
    folder: Path

    def loomrl(self, *words: str, token: str | None = TOKEN) -> subprocess.CompletedProcess[str]:
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
        more = () if words[0] == "train" else ("--address", self.url)
        return cli(*words, *more, cwd=self.folder, HOME=str(self.folder), **auth)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, unused_tcp_port_factory: Callable[[], int]) -> Iterator[Site]:
    """The cluster, and a folder to submit from."""
    folder = tmp_path_factory.mktemp("work")
    python = bare_python(folder / "venv")
    env = environment(python, **AUTH, HOME=str(folder))
    with ray_of_its_own(folder, unused_tcp_port_factory, cpus=1, python=python, env=env) as (cluster, _):
        cluster.join("worker", cpus=2, rollout=2)
        (folder / "work").mkdir()
        yield Site(cluster.url, cluster.address, folder / "work")


@pytest.mark.parametrize(("token", "said"), [(None, "Missing authentication token"), ("other", "Invalid authentic")])
def test_without_the_right_token_the_remedy_is_named(site: Site, token: str | None, said: str) -> None:
    done = site.loomrl("submit", *CONTROL, token=token)
    assert done.returncode == 2
    for part in (said, "RAY_AUTH_TOKEN", "ray get-auth-token"):
        assert part in done.stderr


def test_a_job_trains_exactly_the_experiment_that_was_shown_where_nothing_is_installed(site: Site) -> None:
    done = site.loomrl("submit", *CONTROL, *PLACED, "--run", "r", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["job"]["status"], told["result"]["run"]) == ("SUCCEEDED", "r")
    with open_store(f"sqlite:///{site.folder}/loom.db") as db:  # relative paths are those of here, as all nodes are
        recorded = RUNS.require(db, "r")
    assert recorded.experiment == told["sha256"]
    trained = load_experiment(recorded)
    wanted = resolve([*CONTROL, *PLACED])
    assert trained.algorithm == wanted.algorithm
    assert trained.placement == wanted.placement


def test_rays_own_submission_works_as_well(site: Site) -> None:
    """From the checkout; all nodes have LoomRL from the working directory alone, which `make tree` makes of links."""
    tree = site.folder / "tree/loomrl"
    tree.mkdir(parents=True)
    for part in (
        *(ROOT / "loomrl").iterdir(),
        *(ROOT / name for name in ("algorithms", "cluster", "envs", "experiments")),
    ):
        (tree / part.name).symlink_to(part)
    words = (
        *("train", *LANGUAGE, "--run", "plain"),
        *(f"store_url=sqlite:///{site.folder}/plain.db", f"artifact_url={site.folder}/plain"),
        *(f"train.folder={site.folder}/runs", "--json"),
    )
    (tree.parent / "loomrl.egg-info").symlink_to(ROOT / "loomrl.egg-info")  # which names the environments
    env = environment(Path(sys.executable), **AUTH, HOME=str(site.folder))
    submit = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", site.url]
    done = subprocess.run(
        [*submit, "--working-dir", str(tree.parent), "--", "python", "-m", "loomrl", *words],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with open_store(f"sqlite:///{site.folder}/plain.db") as db:
        assert RUNS.require(db, "plain").status == "finished"


def test_a_driver_that_joins_brings_its_packages_along(site: Site) -> None:
    words = ("train", *CONTROL, *PLACED, "--run", "joined")
    done = cli(*words, "--json", cwd=site.folder, HOME=str(site.folder), RAY_ADDRESS=site.address, **AUTH)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["run"] == "joined"


def test_a_driver_with_another_token_is_refused(site: Site) -> None:
    auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "other"}
    done = cli("train", *CONTROL, cwd=site.folder, HOME=str(site.folder), RAY_ADDRESS=site.address, **auth)
    assert done.returncode == 2
    assert "another token" in done.stderr
    assert "RAY_AUTH_TOKEN" in done.stderr


def test_a_job_that_dies_hands_on_its_status_and_one_that_runs_is_stopped(site: Site) -> None:
    done = site.loomrl("submit", *CONTROL, "environment.id=NoSuch-v1", "--run", "dead")
    assert done.returncode == 2
    assert "NoSuch" in done.stdout
    assert "job dead: FAILED" in done.stdout
    assert site.loomrl("submit", *CONTROL, "train.steps=100000000", "--run", "long", "--no-wait").returncode == 0
    assert site.loomrl("jobs", "stop", "long").returncode == 0
    assert site.loomrl("jobs", "logs", "long").returncode == 0
    assert "STOPPED" in site.loomrl("jobs", "show", "long").stdout
