"""What Prometheus reads of the record: true after restarts and deletions, and the same whoever is asked."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry

from loomrl.config import HubConfig
from loomrl.coordinator.job import JobPhase
from loomrl.hub.open import open_endpoint_hub
from loomrl.observability import family
from loomrl.store import LoomDB, open_store
from loomrl.store.ab_tests import stop_test
from loomrl.store.events import EVENTS, Event
from loomrl.store.releases import RELEASES
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, beat
from loomrl.telemetry.record import ENDED, RecordCollector, targets
from tests.observability import record_samples
from tests.observability.record_samples import ENDPOINT


class Asked:
    """A collector and its values."""

    def __init__(self, db: LoomDB, url: str) -> None:
        self.collector, self._registry = RecordCollector(db, url), CollectorRegistry()
        self._registry.register(self.collector)

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(name, labels)

    def all(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        found = {}
        for metric in self._registry.collect():
            for sample in metric.samples:
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
        return found


@pytest.fixture
def asked(store: LoomDB, store_url: str) -> Iterator[Asked]:
    made = Asked(store, store_url)
    yield made
    made.collector.close()


def test_a_fresh_record_has_zeros_and_no_error(asked: Asked) -> None:
    assert asked.value("agent_rl_training_jobs_total", status="failed") == 0
    assert asked.value("agent_rl_trajectory_reward_count") == 0


def test_everything_on_record_is_told_by_the_names_of_the_contract(asked: Asked, store: LoomDB, store_url: str) -> None:
    record_samples.plant(store, store_url)
    value = asked.value
    assert value("agent_rl_trajectories_collected_total", agent_type=ENDPOINT, task_domain="general") == 3
    assert value("agent_rl_trajectories_collected_total", agent_type="zero", task_domain="coding") == 3
    assert value("agent_rl_trajectory_length_count") == 6
    assert value("agent_rl_trajectory_reward_bucket", le="0.6") == 0
    assert value("agent_rl_trajectory_reward_bucket", le="0.8") == 3
    assert value("agent_rl_trajectory_reward_sum") == pytest.approx(2.1)
    jobs = {
        status: value("agent_rl_training_jobs_total", status=status) for status in ("queued", "completed", "failed")
    }
    assert jobs == {"queued": 2, "completed": 1, "failed": 1}
    assert value("agent_rl_training_duration_seconds_bucket", le="300.0") == 1
    assert value("agent_rl_training_duration_seconds_bucket", le="1800.0") == 2
    assert value("agent_rl_training_samples_bucket", le="5000.0") == 2
    assert value("agent_rl_model_reward_mean", model_version="run/1") == pytest.approx(0.7)
    assert value("agent_rl_model_benchmark_score", model_version="run/2", task_type="coding") == 0.8
    assert value("agent_rl_model_deployments_total", status="rolled_back") == 1
    assert value("agent_rl_model_traffic_percentage", model_version="run/2") == pytest.approx(10)


def test_ab_tests_feedback_by_version_and_ended_releases_are_told(asked: Asked, store: LoomDB, store_url: str) -> None:
    record_samples.plant(store, store_url)
    value = asked.value
    test = {"endpoint": ENDPOINT, "test": "words"}
    for arm, mean in (("stable", 0.75), ("canary", 0.25)):
        assert value("loomrl_ab_units", **test, arm=arm) == 40
        assert value("loomrl_ab_mean", **test, arm=arm, metric="success") == mean
    low, estimate, high = (
        value("loomrl_ab_difference", **test, arm="canary", metric="success", bound=bound) or 0.0
        for bound in ("low", "estimate", "high")
    )
    assert low < estimate < 0
    assert estimate < high
    assert value("loomrl_model_feedback_mean", model_version="run/1", source="human") == 1.0
    assert value("loomrl_model_feedback", model_version="run/1", source="human") == 1
    ended = {"release": f"{ENDPOINT}-1", "endpoint": ENDPOINT, "model_version": "run/2", "status": "rolled_back"}
    newest = RELEASES.newest(store, endpoint=ENDPOINT)
    assert value("loomrl_release_ended_timestamp_seconds", **ended) == newest.created_at
    stop_test(store, "words", at=1e12)
    assert value("loomrl_ab_units", **test, arm="stable") is None


def test_what_is_ours_is_told_too(asked: Asked, store: LoomDB, store_url: str) -> None:
    record_samples.plant(store, store_url)
    value = asked.value
    assert value("loomrl_endpoint_share", endpoint=ENDPOINT, arm="canary", role="canary", model_version="run/2") == 0.1
    assert value("loomrl_violations_total", endpoint=ENDPOINT, arm="canary", rule="secrets", then="replace") == 4
    assert value("loomrl_trajectories_rejected_total", cause="contract") == 2
    assert value("loomrl_alerts_total", endpoint=ENDPOINT, alert="rollback") == 1
    assert value("loomrl_alarm", endpoint=ENDPOINT, alert="bus_away") == 1
    assert value("loomrl_alarm", endpoint=ENDPOINT, alert="training_unreachable") == 0
    assert value("loomrl_training_failures_in_a_row", endpoint=ENDPOINT) == 1
    assert value("loomrl_bus_away_seconds", process="outbox") == pytest.approx(400, abs=60)
    assert value("loomrl_feedback_total", source="human", kind="thumb") == 1
    assert value("loomrl_reward_confidence", endpoint=ENDPOINT) == 0.5


def test_counters_are_those_of_the_record_after_a_restart_and_after_what_was_counted_is_deleted(
    asked: Asked, store: LoomDB, store_url: str
) -> None:
    record_samples.plant(store, store_url)
    before = asked.all()
    with open_endpoint_hub(store_url, ENDPOINT, HubConfig()) as hub:
        hub.delete(["t-0", "t-1"])
    again = Asked(store, store_url)
    try:
        after = again.all()
        changing = {family.BUS_AWAY.name, family.REWARD_AGE.name, family.RELEASE_AGE.name}
        assert {key: value for key, value in after.items() if key[0] not in changing} == {
            key: value for key, value in before.items() if key[0] not in changing
        }
        record_samples.collect(store, store_url, first=3, count=2)
        assert again.value("agent_rl_trajectories_collected_total", agent_type=ENDPOINT, task_domain="general") == 5
    finally:
        again.collector.close()


def test_a_trajectory_that_is_judged_again_is_one_reward(asked: Asked, store: LoomDB) -> None:
    record_samples.judge(store, ["a", "b"], version="run/1", total=0.1)
    assert asked.value("agent_rl_trajectory_reward_count") == 2
    record_samples.judge(store, ["b", "c", "c"], version="run/1", total=0.9, again=1)
    assert asked.value("agent_rl_trajectory_reward_count") == 3


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_many_who_count_at_once_count_each_record_once(store: LoomDB, store_url: str) -> None:
    record_samples.serve(store)
    record_samples.collect(store, store_url, count=40)
    record_samples.judge(store, [f"t-{n}" for n in range(40)], version="run/1", total=0.5)

    def count(_: int) -> float | None:
        with open_store(store_url) as db:
            mine = Asked(db, store_url)
            try:
                collected = "agent_rl_trajectories_collected_total"
                assert mine.value(collected, agent_type=ENDPOINT, task_domain="general") == 40
                return mine.value("agent_rl_trajectory_reward_count")
            finally:
                mine.collector.close()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(count, range(4))) == [40] * 4


def test_failures_in_a_row_end_with_a_training_that_did_not_fail(asked: Asked, store: LoomDB) -> None:
    for number in range(3):
        record_samples.train(store, str(number), [JobPhase.RUNNING, JobPhase.FAILED], seconds=1)
    assert asked.value("loomrl_training_failures_in_a_row", endpoint=ENDPOINT) == 3
    record_samples.train(store, "8", [JobPhase.RUNNING, JobPhase.COMPLETED, JobPhase.DONE], seconds=1)
    assert asked.value("loomrl_training_failures_in_a_row", endpoint=ENDPOINT) == 0


def test_a_service_that_was_killed_is_still_wanted_and_one_that_ended_is_not(asked: Asked, store: LoomDB) -> None:
    record_samples.serve(store)
    assert asked.value("loomrl_endpoint_served", endpoint=ENDPOINT) == 1
    assert asked.value("loomrl_processes", role="gateway", endpoint=ENDPOINT) == 0
    EVENTS.append(store, [Event(kind=ENDED, subject=ENDPOINT, created_at=2.0)])
    assert asked.value("loomrl_endpoint_served", endpoint=ENDPOINT) == 0


def test_whoever_is_up_and_counts_by_itself_is_a_target(store: LoomDB) -> None:
    usual = {"node": "here", "pid": 1, "state": ReplicaState.READY}
    beat(store, Replica(id="g", role=ReplicaRole.GATEWAY, endpoint="e", address="127.0.0.1:1", **usual))
    beat(store, Replica(id="t", role=ReplicaRole.TRAINER, policy="run-1", address="127.0.0.1:2", **usual))
    beat(store, Replica(id="b", role=ReplicaRole.BUS, address="", **usual))
    beat(store, Replica(id="p", role=ReplicaRole.POLICY, policy="k", endpoint="e", address="127.0.0.1:3", **usual))
    assert targets(store) == [
        {"targets": ["127.0.0.1:1"], "labels": {"role": "gateway", "node": "here", "endpoint": "e"}},
        {"targets": ["127.0.0.1:2"], "labels": {"role": "trainer", "node": "here", "run": "run-1"}},
    ]
