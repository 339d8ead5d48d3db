"""Every family of metrics, with its labels and meaning: Prometheus' text, documentation and dashboards follow these."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Origin = Literal["record", "gateway", "bus", "trainer"]
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKEN_RATES = (1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A family of metrics. A counter's `name` ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    origin: Origin = "record"
    """`record`: the same from every process. Otherwise the process that counts it, from its start."""
    buckets: tuple[float, ...] = ()

    def counter(self, registry: CollectorRegistry) -> Counter:
        """A counter of this process."""
        return Counter(self.name, self.meaning, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """A gauge of this process."""
        return Gauge(self.name, self.meaning, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """A histogram of this process."""
        return Histogram(self.name, self.meaning, self.labels, registry=registry, buckets=self.buckets)

    def counted(self) -> CounterMetricFamily:
        """Counts that are on record."""
        return CounterMetricFamily(self.name, self.meaning, labels=self.labels)

    def measured(self) -> GaugeMetricFamily:
        """Values that are on record."""
        return GaugeMetricFamily(self.name, self.meaning, labels=self.labels)


# -- the contract's ---------------------------------------------------------------------------------------------------

COLLECTED = Family(
    "agent_rl_trajectories_collected_total",
    "counter",
    "Trajectories that were collected from agents and endpoints.",
    ("agent_type", "task_domain"),
)
LENGTH = Family(
    "agent_rl_trajectory_length",
    "histogram",
    "Turns, or control steps, of a trajectory.",
    buckets=(1, 3, 5, 10, 20, 50),
)
REWARD = Family(
    "agent_rl_trajectory_reward",
    "histogram",
    "First reward of a trajectory.",
    buckets=(0, 0.2, 0.4, 0.6, 0.8, 1),
)
JOBS = Family("agent_rl_training_jobs_total", "counter", "Trainings that came to have a status.", ("status",))
DURATION = Family(
    "agent_rl_training_duration_seconds",
    "histogram",
    "Duration of a training that has ended.",
    buckets=(300, 600, 1800, 3600, 7200, 14400),
)
SAMPLES = Family(
    "agent_rl_training_samples",
    "histogram",
    "Trajectories in the data set of a training that has begun.",
    buckets=(1e3, 5e3, 1e4, 5e4, 1e5),
)
REWARD_MEAN = Family(
    "agent_rl_model_reward_mean",
    "gauge",
    "Mean reward of the latest 1000 judged trajectories of an endpoint that this version alone made.",
    ("model_version",),
)
BENCHMARK = Family(
    "agent_rl_model_benchmark_score",
    "gauge",
    "Mean success in a benchmark of the gate, by its latest verdict.",
    ("model_version", "task_type"),
)
DEPLOYMENTS = Family("agent_rl_model_deployments_total", "counter", "Releases that came to have a status.", ("status",))
TRAFFIC = Family(
    "agent_rl_model_traffic_percentage",
    "gauge",
    "Largest share of an endpoint's traffic that a version has, 0 to 100.",
    ("model_version",),
)
ERROR_RATE = Family(
    "agent_rl_model_error_rate",
    "gauge",
    "Share of the calls given to a version in the last five minutes that it did not answer, in this gateway.",
    ("model_version",),
    "gateway",
)
ERRORS = Family(
    "agent_rl_model_errors_total",
    "counter",
    "Calls given to a version that it did not answer, or not in time.",
    ("model_version",),
    "gateway",
)
CONTRACT = (
    COLLECTED,
    LENGTH,
    REWARD,
    JOBS,
    DURATION,
    SAMPLES,
    REWARD_MEAN,
    BENCHMARK,
    DEPLOYMENTS,
    TRAFFIC,
    ERROR_RATE,
    ERRORS,
)
"""The names that other people's dashboards know."""

# -- ours: the record -------------------------------------------------------------------------------------------------

SHARE = Family(
    "loomrl_endpoint_share",
    "gauge",
    "Share of an endpoint's traffic that an arm has, 0 to 1; of a shadow, the share of calls it gets a copy of.",
    ("endpoint", "arm", "role", "model_version"),
)
WANTED = Family(
    "loomrl_endpoint_served", "gauge", "1 from the start of a service to its orderly end, else 0.", ("endpoint",)
)
PROCESSES = Family(
    "loomrl_processes", "gauge", "Processes whose heartbeat is on record, by their part.", ("role", "endpoint")
)
REWARD_AGE = Family(
    "loomrl_reward_age_seconds", "gauge", "Seconds since a trajectory of an endpoint was last judged.", ("endpoint",)
)
CONFIDENCE = Family(
    "loomrl_reward_confidence",
    "gauge",
    "Mean share of a reward's weights for which there was evidence, of the latest 1000 judged trajectories.",
    ("endpoint",),
)
UNJUDGED = Family(
    "loomrl_sessions_lost",
    "gauge",
    "Sessions of the last hour that ended and became no trajectory.",
    ("endpoint",),
)
REJECTED = Family(
    "loomrl_trajectories_rejected_total",
    "counter",
    "Trajectories of other people's agents that could not be taken in.",
    ("cause",),
)
FEEDBACK = Family("loomrl_feedback_total", "counter", "Feedback that was given.", ("source", "kind"))
HITS = Family(
    "loomrl_violations_total",
    "counter",
    "Hits of the monitor's rules in answers and actions.",
    ("endpoint", "arm", "rule", "then"),
)
VERDICTS = Family("loomrl_verdicts_total", "counter", "Verdicts of the gate.", ("outcome",))
ALERTED = Family("loomrl_alerts_total", "counter", "Alerts that a coordinator raised.", ("endpoint", "alert"))
ALARM = Family("loomrl_alarm", "gauge", "1 while a coordinator's alarm holds, else 0.", ("endpoint", "alert"))
FAILED_IN_A_ROW = Family(
    "loomrl_training_failures_in_a_row", "gauge", "Trainings that failed since one did not.", ("endpoint",)
)
OPEN_JOBS = Family("loomrl_training_jobs_open", "gauge", "Trainings that are not over.", ("endpoint", "status"))
BUS_AWAY = Family(
    "loomrl_bus_away_seconds", "gauge", "Seconds since a process cannot use the bus; 0 while it can.", ("process",)
)
BUS_BEHIND = Family("loomrl_bus_behind", "gauge", "Events on record that are not published yet.", ("bus",))
RELEASE_AGE = Family(
    "loomrl_release_open_seconds", "gauge", "Age of a release that is open; 0 without one.", ("endpoint",)
)
RELEASED = Family(
    "loomrl_release_ended_timestamp_seconds",
    "gauge",
    "Unix time at which a release ended, of the latest 50; `status` says how: done, rolled_back, aborted or stopped.",
    ("release", "endpoint", "model_version", "status"),
)
FEEDBACK_MEAN = Family(
    "loomrl_model_feedback_mean",
    "gauge",
    "Mean value of the feedback, 0 to 1, on the trajectories of `agent_rl_model_reward_mean`.",
    ("model_version", "source"),
)
FEEDBACK_COUNT = Family(
    "loomrl_model_feedback", "gauge", "Feedback that this mean is over.", ("model_version", "source")
)
AB_UNITS = Family(
    "loomrl_ab_units", "gauge", "Units that an arm of a running A/B test was given.", ("endpoint", "test", "arm")
)
AB_MEAN = Family(
    "loomrl_ab_mean",
    "gauge",
    "Mean of a metric in an arm of a running A/B test.",
    ("endpoint", "test", "arm", "metric"),
)
AB_DIFFERENCE = Family(
    "loomrl_ab_difference",
    "gauge",
    "Difference of an arm from the first one, with the bounds that hold at every look: estimate, low, high.",
    ("endpoint", "test", "arm", "metric", "bound"),
)

# -- ours: a gateway --------------------------------------------------------------------------------------------------

CALLS = Family(
    "loomrl_gateway_calls_total",
    "counter",
    "Calls by the arm they were given to. `moved`: another arm answered. `failed`: no arm did. `refused`: the request "
    "was wrong, or a rule stopped the answer. `gone`: the caller hung up.",
    ("endpoint", "arm", "model_version", "outcome"),
    "gateway",
)
REFUSALS = Family(
    "loomrl_gateway_refusals_total", "counter", "Requests that were refused, by cause.", ("cause",), "gateway"
)
LATENCY = Family(
    "loomrl_gateway_latency_seconds",
    "histogram",
    "Time from the choice of an arm to the end of the answer.",
    ("endpoint", "arm"),
    "gateway",
    SECONDS,
)
FIRST_TOKEN = Family(
    "loomrl_gateway_first_token_seconds",
    "histogram",
    "Time from the choice of an arm to the first token.",
    ("endpoint", "arm"),
    "gateway",
    SECONDS,
)
TOKEN_RATE = Family(
    "loomrl_gateway_tokens_per_second",
    "histogram",
    "Tokens per second of an answer, after its first token.",
    ("endpoint", "arm"),
    "gateway",
    TOKEN_RATES,
)
TOKENS = Family(
    "loomrl_gateway_tokens_total",
    "counter",
    "Tokens of answered calls: `prompt`, of them `cached`, and `completion`.",
    ("endpoint", "arm", "kind"),
    "gateway",
)
VIOLATING = Family(
    "loomrl_gateway_violating_calls_total",
    "counter",
    "Calls in whose answer a rule of the monitor found something.",
    ("endpoint", "arm"),
    "gateway",
)
BUSY = Family("loomrl_gateway_busy", "gauge", "Calls that are being answered.", ("endpoint",), "gateway")
WAITING = Family("loomrl_gateway_waiting", "gauge", "Calls that wait for a place.", ("endpoint",), "gateway")
QUEUE = Family("loomrl_gateway_queue", "gauge", "Calls that may wait for a place.", ("endpoint",), "gateway")

# -- ours: the bus, and trainings -------------------------------------------------------------------------------------

PUBLISHED = Family("loomrl_bus_published_total", "counter", "Messages that were published.", (), "bus")
TAKEN = Family(
    "loomrl_bus_taken_total",
    "counter",
    "Messages that were acknowledged: `stored`, `own`, `dead` or `opted_out`.",
    ("outcome",),
    "bus",
)
TRAINING_STEP = Family("loomrl_training_step", "gauge", "Updates, or environment steps, so far.", ("run",), "trainer")
TRAINING_AT = Family(
    "loomrl_training_updated_timestamp_seconds", "gauge", "Unix time of the last update.", ("run",), "trainer"
)
TRAINING_PREFIX = "loomrl_training_"


def families() -> Iterator[Family]:
    """All of them; a run's metrics (`loomrl.telemetry.metric`) are further ones."""
    yield from (each for each in globals().values() if isinstance(each, Family))
