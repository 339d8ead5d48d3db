"""Clusters that do not fit together: refused before anything is trained, by the name of what differs."""

from collections.abc import Iterator
from typing import Any

import pytest

from loomrl.errors import ClusterError
from loomrl.experiments.bench.served import save_language
from loomrl.experiments.shipped import resolve
from loomrl.load import dump, to_yaml
from tests.cluster.lab.faults import experiment
from tests.cluster.lab.hosts import BUCKET, ENV, Hosts, hosts
from tests.needs import ROOT, needs
from tests.serving.control_support import control_policy

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(600)]
OTHER_RAY = """
import ray, sys
ray.__version__ = "2.1.0"
from loomrl.experiments.cli import main
sys.argv = ["loomrl", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "laptop", "one", "stray") as found:
        found.start_ray("head", head=True, cpus=0)
        found.start_ray("laptop", cpus=0)
        found.start_ray("one", cpus=3, learner=1, rollout=2)
        yield found


def refused(site: Hosts, wanted: Any, *, env: dict[str, str] | None = None, first: list[str] | None = None) -> str:
    """What `loomrl train` says of it on the laptop, whose word for it is 2."""
    (site.lab.shared / "refused.yaml").write_text(dump(wanted))
    words = [*(first or ["loomrl"]), "train", "/tmp/shared/refused.yaml", "--run", "refused"]
    env = ENV | {"RAY_ADDRESS": "head:6379"} | (env or {})
    done = site.lab.run("laptop", words, env=env, check=False, timeout_s=120)
    assert done.returncode == 2, done.stderr[-3000:]
    assert site.run("refused") is None
    return " ".join(done.stderr.split())


def test_a_clock_that_is_apart(site: Hosts) -> None:
    site.lab.clock("laptop", -90)
    try:
        assert "clock of this host is 90 s behind the database's" in refused(site, experiment(site, 1))
    finally:
        site.lab.clock("laptop", 0)


def test_another_token(site: Hosts) -> None:
    said = refused(site, experiment(site, 1), env={"RAY_AUTH_TOKEN": "another-" + "y" * 40})
    assert "head:6379: the cluster expects another token. Set RAY_AUTH_MODE=token" in said


def test_another_ray_in_front_of_the_cluster(site: Hosts) -> None:
    said = refused(site, experiment(site, 1), first=["python", "-c", OTHER_RAY])
    assert "LoomRL here Ray 2.1.0" in said


def test_another_python_on_a_host_that_would_join(site: Hosts) -> None:
    """Ray's own refusal; the system's Python is of another patch level."""
    start = ["/usr/bin/python3", "-m", "ray.scripts.scripts", "start", "--address=head:6379"]
    packages = f"{ROOT}/.venv/lib/python3.11/site-packages"
    with pytest.raises(ClusterError, match=r"(?s)Version mismatch.*Python: 3\.11\.\d+"):
        site.lab.run("stray", start, env=ENV | {"PYTHONPATH": packages}, timeout_s=120)


def test_a_host_without_the_shared_folder(site: Hosts) -> None:
    said = refused(site, experiment(site, 1).override({"artifact_url": "/tmp/home/artifacts"}))
    assert "artifact_url=/tmp/home/artifacts: one (" in said
    assert "cannot see it" in said
    save_language(site.lab.shared / "talk")
    site.lab.run("laptop", ["cp", "-r", "/tmp/shared/talk", "/tmp/home/model"])
    model = {"algorithm.model.path": "/tmp/home/model", "algorithm.model.build": None}
    said = refused(site, experiment(site, 1).override(model))
    assert "algorithm.model.path=/tmp/home/model" in said


@pytest.mark.parametrize("what", ["sweep", "serve"])
def test_a_file_for_a_database(site: Hosts, what: str) -> None:
    """Trials and gateways on other hosts would each begin one of their own."""
    one = resolve(["control/cartpole", "train.steps=3000", "evaluation.every=null"])
    place = {"artifact_url": BUCKET, "train.folder": "/tmp/shared/runs", "store_url": "sqlite:////tmp/shared/loom.db"}
    if what == "sweep":
        space = {"algorithm.gamma": {"kind": "choice", "values": [0.9]}}
        tree = {"kind": "sweep", "name": "s", "experiment": one.override(place).plain, "space": space, "samples": 1}
        (site.lab.shared / "s.yaml").write_text(to_yaml(tree))
        words = ["sweep", "/tmp/shared/s.yaml"]
    else:
        control_policy().save(site.lab.shared / "cart")
        words = ["serve", "/tmp/shared/cart", "host=0.0.0.0", f"store_url={place['store_url']}"]
    env = ENV | {"RAY_ADDRESS": "head:6379"}
    done = site.lab.run("laptop", ["loomrl", *words], env=env, check=False, timeout_s=120)
    assert done.returncode == 2, done.stderr[-3000:]
    assert "SQLite is for one machine, and processes on one (" in " ".join(done.stderr.split())
