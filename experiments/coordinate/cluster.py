"""Trainings as jobs of a Ray cluster."""

from loomrl.cluster.job import Jobs, settled
from loomrl.config import Experiment
from loomrl.coordinator.decision import Work
from loomrl.errors import ClusterError
from loomrl.experiments.coordinate.work import TAIL, Found


class ClusterWork:
    """Jobs whose ids are ours: the cluster refuses a second one of an id, so that each is started once."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._jobs: Jobs | None = None

    def start(self, name: str, experiment: Experiment, run: str) -> bool:
        """Submit a training, unless it was. A ClusterError if the cluster does not answer."""
        jobs = self._cluster()
        jobs.submit(settled(experiment, jobs), run, id=name)
        return True

    def look(self, name: str) -> Found:
        """What has become of it."""
        jobs = self._cluster()
        if name not in {job.id for job in jobs.list()}:
            return Found(work=Work.ABSENT)
        job = jobs.show(name)
        if not job.is_over:
            return Found(work=Work.RUNNING)
        return Found(work=Work.ENDED, exit_code=job.exit_code, log=_log(jobs, name))

    def stop(self, name: str) -> None:
        """Ask it to end."""
        if self.look(name).work is Work.RUNNING:
            self._cluster().stop(name)

    def _cluster(self) -> Jobs:
        """The connection; a new one after an error, as the cluster may be another one then."""
        if self._jobs is None:
            self._jobs = Jobs(self._address)
        return self._jobs

    def forget(self) -> None:
        """Connect anew the next time."""
        self._jobs = None


def _log(jobs: Jobs, name: str) -> str:
    try:
        return jobs.logs(name)[-TAIL:]
    except ClusterError as error:  # the node that had it is gone
        return str(error)
