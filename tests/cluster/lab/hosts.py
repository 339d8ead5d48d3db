"""A cluster on hosts of a lab: PostgreSQL and S3 on one of them, Ray on the others, and runs that are trained there."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from loomrl.config import AnyExperiment, ServingExperiment
from loomrl.errors import StoreError
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS, Run, ask_to_stop
from tests.cluster.lab.lab_support import RAY, TOKEN, a_name, a_network
from tests.lab import Lab
from tests.needs import ROOT, postgres_binaries

PASSWORD = "only-in-this-lab"
STORE = "postgresql://loom@db/loom"
BUCKET = "s3://loomrl/artifacts?endpoint_override=db:9000&scheme=http"
SECRETS = {
    "PGPASSWORD": PASSWORD,
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_EC2_METADATA_DISABLED": "true",
}
ENV = {
    **RAY,
    **TOKEN,
    **SECRETS,
    "PYTHONPATH": str(ROOT),
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "RAY_worker_niceness": "0",  # what else runs on this machine takes no turn from them
    "RAY_prestart_worker_first_driver": "0",  # a worker is started when something runs in it
    # A host that is gone is known to be gone after five seconds, not thirty.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
}
PATIENCE_S = 420.0


class Hosts:
    """A lab, and what runs on it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self._folder = lab, folder
        self.store_url = f"postgresql://loom:{PASSWORD}@{lab.plan.host('db').address}/loom"
        self.runs = lab.shared / "runs"
        self._logs: dict[str, Path] = {}
        self.programs: list[subprocess.Popen[str]] = []
        self._rays: dict[str, dict[str, Any]] = {}

    # -- services ------------------------------------------------------------------------------------------------------

    def start_database(self) -> None:
        """PostgreSQL on its host; again after its power was cut, with what it had."""
        binaries = postgres_binaries()
        assert binaries is not None
        as_account = "setpriv --reuid=postgres --regid=postgres --clear-groups"
        begin = f"""
            set -e
            cd /tmp
            if [ ! -e /tmp/pg/ready ]; then
                install -d -o postgres -m 700 /tmp/pg
                echo {PASSWORD} > /tmp/pg-password
                begin="{binaries}/initdb -D /tmp/pg/data -U loom -A scram-sha-256 --pwfile=/tmp/pg-password"
                {as_account} $begin >/dev/null
                rm /tmp/pg-password
                echo 'host all all {self.lab.plan.network} scram-sha-256' >> /tmp/pg/data/pg_hba.conf
                echo "listen_addresses = '*'" >> /tmp/pg/data/postgresql.conf
                touch /tmp/pg/ready
            fi
            rm -f /tmp/pg/data/postmaster.pid
            {as_account} {binaries}/pg_ctl -D /tmp/pg/data -o '-k /tmp/pg' -l /tmp/pg/log -w start || {{
                tail -n 20 /tmp/pg/log
                exit 1
            }}
        """
        self.lab.run("db", ["sh", "-c", begin], timeout_s=120)
        there = ["psql", "-h", "127.0.0.1", "-U", "loom", "-d", "postgres", "-tAc"]
        if not self.lab.run("db", [*there, "select 1 from pg_database where datname = 'loom'"], env=SECRETS).stdout:
            self.lab.run("db", [*there, "create database loom"], env=SECRETS)

    def stop_database(self) -> None:
        """As when its machine is restarted: connections break at once."""
        binaries = postgres_binaries()
        words = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", f"{binaries}/pg_ctl"]
        self.lab.run("db", [*words, "-D", "/tmp/pg/data", "-m", "immediate", "stop"])

    def start_bucket(self) -> None:
        """S3 on the database's host, in memory."""
        self.start("db", "s3", ["python", "-m", "moto.server", "-H", "0.0.0.0", "-p", "9000"])
        client = "boto3.client('s3', endpoint_url='http://db:9000', region_name='us-east-1')"
        make = ["python", "-c", f"import boto3; {client}.create_bucket(Bucket='loomrl')"]
        self.until(lambda: self.lab.run("db", make, env=SECRETS, check=False).returncode == 0, "no S3")

    def start_ray(
        self,
        host: str,
        *,
        head: bool = False,
        cpus: int = 1,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **resources: float,
    ) -> None:
        """Ray on a host, as by hand."""
        self._rays[host] = {"head": head, "cpus": cpus, "options": options, "env": env, **resources}
        words = ["ray", "start", f"--num-cpus={cpus}", "--object-store-memory=100000000", "--disable-usage-stats"]
        words += ["--include-log-monitor=false"]  # a process less on every host; logs stay in its /tmp/ray
        words += ["--head", "--port=6379", "--include-dashboard=false"] if head else ["--address=head:6379"]
        words += [f"--resources={json.dumps(resources)}", *options]
        self.lab.run(host, words, env=ENV | dict(env or {}), timeout_s=240)

    def join(self, host: str) -> None:
        """Ray on a host again, as it was."""
        self.start_ray(host, **self._rays[host])

    def end_ray(self, host: str) -> None:
        """No process of Ray is left on a host."""
        self.lab.run(host, ["sh", "-c", "pkill -KILL raylet; sleep 1; pkill -KILL -f ray; true"], check=False)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def settled(self, experiment: Any) -> Any:
        """The experiment with its results where every host reaches them."""
        return experiment.override(
            {"store_url": STORE, "artifact_url": BUCKET, "train.folder": "/tmp/shared/runs", "placement.wait_s": 120}
        )

    def train(self, host: str, experiment: AnyExperiment, run: str) -> "subprocess.Popen[str]":
        """`loomrl train` on a host, in front of the cluster."""
        (self.lab.shared / f"{run}.yaml").write_text(dump(experiment))
        words = ["loomrl", "train", f"/tmp/shared/{run}.yaml", "--run", run, "--json"]
        return self.start(host, run, words, {"RAY_ADDRESS": "head:6379"})

    def resume(self, host: str, experiment: AnyExperiment, run: str, changes: list[str]) -> "subprocess.Popen[str]":
        """`loomrl train --resume` with these settings."""
        words = ["loomrl", "train", "--resume", "--run", run, f"store_url={experiment.store_url}", *changes, "--json"]
        return self.start(host, run, words, {"RAY_ADDRESS": "head:6379"})

    def serve(self, experiment: ServingExperiment) -> tuple[str, str]:
        """`loomrl serve` on the head: its address and a key, once it answers."""
        (self.lab.shared / "service.yaml").write_text(dump(experiment))
        words = ["loomrl", "serve", "/tmp/shared/service.yaml", "--json"]
        self.start("head", "service", words, {"RAY_ADDRESS": "head:6379"})
        self.until(lambda: '"key"' in self.log("service"), "no service")
        said = json.loads(next(line for line in self.log("service").splitlines() if line.startswith("{")))
        return said["url"], said["key"]

    def start(
        self, host: str, name: str, words: list[str], env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """A program on a host; its log is kept under this name."""
        self._logs[name] = self._folder / f"{name}-{len(self._logs)}.log"
        env = ENV | dict(env or {})
        with self._logs[name].open("w") as log:
            self.programs.append(self.lab.start(host, words, env=env, stdout=log, stderr=subprocess.STDOUT))
        return self.programs[-1]

    def log_file(self, name: str) -> Path:
        """The log of the latest program of this name."""
        return self._logs[name]

    def log(self, name: str) -> str:
        """Its text."""
        return self._logs[name].read_text()

    def newest(self, run: str) -> int:
        """The number of a run's newest version; -1 before the first."""
        with open_store(self.store_url) as db:
            return max((version.number for version in POLICIES.latest(db, run=run)), default=-1)

    def run(self, run: str) -> Run | None:
        """The run on record."""
        with open_store(self.store_url) as db:
            return RUNS.find(db, run)

    def stop(self, run: str) -> None:
        """The run ends after its present update."""
        with open_store(self.store_url) as db:
            ask_to_stop(db, run, who="a test", why="it has shown what it had to", at=time.time())

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for it. A database that does not answer, which some tests want, says nothing yet."""

        def known() -> bool:
            try:
                return is_so()
            except StoreError:
                return False

        deadline = time.monotonic() + PATIENCE_S
        while not known():
            assert time.monotonic() < deadline, f"{what} within {PATIENCE_S:g} s\n{self._tails()}"
            time.sleep(0.4)  # each look opens LoomDB

    def until_version(self, run: str, number: int, process: "subprocess.Popen[str]") -> None:
        """Wait until the run has this version; the process must not end before."""

        def has() -> bool:
            assert process.poll() in (None, 0), self.log(run)[-5000:]
            return self.newest(run) >= number

        self.until(has, f"{run} has no version {number}")

    def ended(self, process: "subprocess.Popen[str]", run: str) -> int:
        """The exit status of a training."""
        self.until(lambda: process.poll() is not None, f"{run} has not ended")
        return process.returncode

    def _tails(self) -> str:
        return "\n".join(f"-- {name}\n{log.read_text()[-2500:]}" for name, log in self._logs.items())


@contextmanager
def hosts(folder: Path, *names: str, disk_mb: int = 1024) -> Iterator[Hosts]:
    """Hosts of these names beside `db`, which has PostgreSQL and S3. This machine reaches them."""
    with ExitStack() as stack:
        lab = Lab.up(a_name(), ["db", *names], network=a_network(), disk_mb=disk_mb, uplink=True)
        found = Hosts(lab, folder)
        stack.callback(lambda: [program.wait(timeout=20) for program in found.programs])  # the lab's end kills them
        stack.enter_context(lab)
        found.start_database()
        found.start_bucket()
        yield found
