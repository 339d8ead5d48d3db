"""Experiments as Ray jobs: submit, follow, stop, and fetch the result."""

import asyncio
import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loomrl.cluster.address import ANSWER_S, TOKEN_REMEDY, dashboard_url
from loomrl.cluster.bundle import EXPERIMENT, Bundle, bundle
from loomrl.config import LoopExperiment, ProcessResources, Root, Training
from loomrl.errors import ClusterError, unknown

Say = Callable[[str], None]
YOUNG_S = 60.0
"""Time for a new head node that answers to accept jobs."""
COPIES = "working_dir_files"
"""Ray's folder for the unpacked `working_dir` of jobs."""
FAILED = 1
"""Exit status of a job that ended without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, as the cluster reports it."""

    id: str
    run: str | None
    """None if it was not submitted by LoomRL."""
    experiment: str | None
    """sha256 of its experiment."""
    status: str
    exit_code: int | None = None
    message: str | None = None
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def is_over(self) -> bool:
        """True if it has ended, well or not."""
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")

    @property
    def exit_status(self) -> int:
        """The exit status for a command that waited for it."""
        return 0 if self.status == "SUCCEEDED" else self.exit_code or FAILED

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class Jobs:
    """The jobs of the cluster at a dashboard's address. A ClusterError, within seconds, if there is none."""

    def __init__(self, address: str | None = None) -> None:
        self.url = dashboard_url(address)
        _refuse_silent(self.url)
        import ray
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
        from ray.job_submission import JobSubmissionClient

        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)  # as `ray job` does
        os.environ["RAY_API_SERVER_ADDRESS"] = self.url  # which goes before what the client is given
        for handler in logging.getLogger("ray").handlers:
            handler.setLevel(logging.WARNING)  # what it uploads, we say ourselves
        with self._request_errors():
            self._client = JobSubmissionClient(self.url)
        if self._client._server_ray_version != ray.__version__:
            raise ClusterError(
                f"{self.url}: the cluster runs Ray {self._client._server_ray_version}, LoomRL needs {ray.__version__}. "
                "Start the cluster from LoomRL's image (docs/cluster.md), or install the LoomRL that fits."
            )

    @property
    def is_here(self) -> bool:
        """True if all nodes are this machine. A forwarded port looks like this machine, but is not."""
        deadline = time.monotonic() + YOUNG_S
        while not (names := self._node_names()) or None in names:
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.url}: the cluster does not say which nodes it has. Is it up?")
            time.sleep(0.2)
        return names == {socket.gethostname()}

    def _node_names(self) -> set[str | None]:
        """The nodes' host names; a new head node answers before it knows them."""
        with self._request_errors():
            nodes = self._client._do_request("GET", "/nodes?view=summary", timeout=30).json()["data"]["summary"]
        return {node["raylet"].get("nodeManagerHostname") for node in nodes}

    def submit(self, experiment: Root, run: str, *, id: str | None = None, say: Say = lambda text: None) -> Job:
        """Train, serve or coordinate exactly this experiment as run `run`; an existing run is resumed.

        A job of this id that there is already is not submitted again.
        """
        driver = experiment.placement.driver if isinstance(experiment, Training) else ProcessResources()
        taken = {job.id for job in self.list()}
        if id in taken:
            return self.show(id)
        id = id or next(name for name in _names(run) if name not in taken)
        with tempfile.TemporaryDirectory(prefix="loomrl-job-") as folder, self._request_errors():
            parcel: Bundle = bundle(experiment, Path(folder))
            say(f"job {id} to {self.url}: experiment {experiment.sha256[:12]}, {parcel.size}")
            self._submit(
                entrypoint=f"python -m loomrl {_verb(experiment, run)}",
                submission_id=id,
                runtime_env={"working_dir": str(parcel.folder)},
                metadata={"loomrl_run": run, "loomrl_experiment": experiment.sha256},
                entrypoint_num_cpus=driver.cpus,
                entrypoint_resources=dict(driver.resources) or None,
            )
        return self.show(id)

    def list(self) -> list[Job]:
        """Every job, the latest first."""
        with self._request_errors():
            found = [_job(details) for details in self._client.list_jobs() if details.submission_id]
        return sorted(found, key=lambda job: -(job.started_at or 0))

    def show(self, id: str) -> Job:
        """The job of this id."""
        self._refuse_unknown(id)
        with self._request_errors():
            return _job(self._client.get_job_info(id))

    def follow(self, id: str, write: Say) -> Job:
        """Write its log as it grows, until it ends; reconnects if the connection breaks."""
        written = 0
        while not (job := self.show(id)).is_over:
            written = asyncio.run(self._tail(id, write, written))
        write(self.logs(id)[written:])
        return job

    def logs(self, id: str) -> str:
        """Its whole log so far."""
        self._refuse_unknown(id)
        with self._request_errors():
            return str(self._client.get_job_logs(id))

    def stop(self, id: str) -> Job:
        """Ask it to end. Its run can be resumed."""
        self._refuse_unknown(id)
        with self._request_errors():
            self._client.stop_job(id)
        return self.show(id)

    def result(self, id: str) -> dict[str, Any]:
        """The result of its training: the last line of its log."""
        job = self.show(id)
        for line in reversed(self.logs(id).splitlines()):
            found = _object(line)
            if "run" in found and "policy" in found:
                return found
        why = f": {job.message}" if job.message else ""
        state = "has no result" if job.is_over else "is not over yet"
        raise ClusterError(f"job {id!r} {state} ({job.status}{why}). `loomrl jobs logs {id}` shows what it says.")

    def _submit(self, **request: Any) -> None:
        """Retry while a new head node is not ready for jobs."""
        deadline = time.monotonic() + YOUNG_S
        while True:
            try:
                self._client.submit_job(**request)
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(1.0)
            else:
                return

    async def _tail(self, id: str, write: Say, written: int) -> int:
        """Write the log from `written` on; returns its length at the end of the connection."""
        seen = 0
        async for part in self._client.tail_job_logs(id):
            new = part[max(0, written - seen) :]
            seen += len(part)
            if new:
                write(new)
        return max(seen, written)

    def _refuse_unknown(self, id: str) -> None:
        known = [job.id for job in self.list()]
        if id not in known:
            raise ClusterError(unknown("job", id, known))

    @contextmanager
    def _request_errors(self) -> Iterator[None]:
        import requests
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError as error:
            said = str(error).strip().splitlines()[0]
            raise ClusterError(f"{self.url}: {said}. {TOKEN_REMEDY}") from None
        except (ConnectionError, RuntimeError, requests.RequestException) as error:
            raise ClusterError(f"{self.url}: {' '.join(str(error).split())}") from error


def settled(experiment: Root, jobs: Jobs) -> Root:
    """The experiment with absolute paths that the job will find.

    On a cluster of other machines, a relative path would be in a folder that is deleted with the job.
    """
    relative = {path: value for path, value in _local_paths(experiment).items() if not Path(value).is_absolute()}
    if not relative:
        return experiment
    if not jobs.is_here:
        named = ", ".join(f"{path}={value}" for path, value in relative.items())
        raise ClusterError(
            f"{named}: relative to a folder of the job, on other machines, that is deleted with it. Name what every "
            "node reaches: store_url=postgresql://HOST/loom, artifact_url=s3://BUCKET/loom, train.folder=/SHARED/runs; "
            "or absolute paths in a file system that the nodes share."
        )
    here = {path: str(Path.cwd() / value) for path, value in relative.items()}
    if "store_url" in here:
        here["store_url"] = f"sqlite:///{here['store_url']}"
    return experiment.override(here)


def refuse_lost(experiment: Root) -> None:
    """A ClusterError if a run would be stored in Ray's temporary copy of a job's folder."""
    here = Path.cwd()
    relative = {path: value for path, value in _local_paths(experiment).items() if not Path(value).is_absolute()}
    if relative and COPIES in here.parts:
        raise ClusterError(
            f"{', '.join(f'{path}={value}' for path, value in relative.items())}: relative to {here}, Ray's own copy "
            "of the job's folder, which it deletes after the job. Use `loomrl submit`, which names where results go, "
            "or name it: store_url=postgresql://HOST/loom artifact_url=s3://BUCKET/loom train.folder=/SHARED/runs; "
            "on one machine absolute paths do (store_url=sqlite:////HOME/loom.db)."
        )


def shared_paths(experiment: Root) -> Mapping[str, str]:
    """Settings with absolute paths, which agree between nodes only on a shared file system."""
    return {path: value for path, value in _local_paths(experiment).items() if Path(value).is_absolute()}


def _local_paths(experiment: Root) -> dict[str, str]:
    tree = experiment.plain
    paths = {"artifact_url": tree["artifact_url"]}
    if "train" in tree:
        paths["train.folder"] = tree["train"]["folder"]
    if isinstance(experiment, LoopExperiment):
        paths["training.train.folder"] = tree["training"]["train"]["folder"]
    if tree["store_url"].startswith("sqlite:///"):
        paths["store_url"] = tree["store_url"].removeprefix("sqlite:///")
    return {path: value for path, value in paths.items() if "://" not in value}


def _refuse_silent(url: str) -> None:
    import httpx

    try:
        answer = httpx.get(f"{url}/api/version", timeout=ANSWER_S)
    except httpx.HTTPError as error:
        raise ClusterError(
            f"{url}: no dashboard of Ray answers there within {ANSWER_S:g} s ({error or type(error).__name__}). Is the "
            "cluster up, and the address the one of its dashboard (--address http://HEAD:8265)? Behind a firewall, "
            "forward the port: `ray dashboard CLUSTER.yaml`, or `kubectl port-forward`."
        ) from None
    if answer.status_code not in (200, 401, 403) or (answer.is_success and '"ray_version"' not in answer.text):
        raise ClusterError(f"{url}: the server there (HTTP {answer.status_code}) is not a Ray dashboard.")


def _verb(experiment: Root, run: str) -> str:
    """The command that does what an experiment says."""
    if isinstance(experiment, Training):
        return f"train {EXPERIMENT} --run {run} --json"
    return f"coordinate {EXPERIMENT}" if isinstance(experiment, LoopExperiment) else f"serve {EXPERIMENT} --json"


def _names(run: str) -> Iterator[str]:
    """Ids for the job of a run: its own, then numbered ones if there was a job already."""
    yield run
    number = 2
    while True:
        yield f"{run}.{number}"
        number += 1


def _job(details: Any) -> Job:
    metadata = details.metadata or {}
    return Job(
        id=details.submission_id,
        run=metadata.get("loomrl_run"),
        experiment=metadata.get("loomrl_experiment"),
        status=str(details.status.value),
        exit_code=details.driver_exit_code,
        message=details.message,
        started_at=details.start_time and details.start_time / 1000,
        ended_at=details.end_time and details.end_time / 1000,
    )


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
