"""The four dashboards. `python -m loomrl.cluster.monitoring.board` writes their JSON."""

import json
from pathlib import Path

from loomrl.cluster.monitoring.outcome import BY_MODEL, RELEASES, VERSIONS
from loomrl.cluster.monitoring.panel import Board, Panel

FOLDER = Path(__file__).resolve().parent / "dashboards"
BY_ARM = "{{endpoint}} {{arm}}"


def _quantiles(metric: str, *, window: str = "6h") -> tuple[tuple[str, str], ...]:
    """The tenths of what a histogram saw lately."""
    rate = f"sum by (le) (increase({metric}_bucket[{window}]))"
    return tuple((f"histogram_quantile({share}, {rate})", f"p{share * 100:g}") for share in (0.1, 0.5, 0.9))


def _run(metric: str, legend: str = "{{run}}") -> tuple[str, str]:
    """A metric of trainings."""
    return f'loomrl_training_{metric}{{run=~"$run",part=""}}', legend


def _share(metric: str, legend: str) -> tuple[str, str]:
    """The share of an update's seconds."""
    return f'loomrl_training_time_{metric}{{run=~"$run",part=""}} / on (run) run:loomrl_training_seconds:sum', legend


OVERVIEW = Board(
    uid="loomrl-training-overview",
    title="RL Training Overview",
    panels=(
        Panel(
            title="Trajectories collected",
            unit="cpm",
            queries=(
                ("sum by (agent_type) (rate(agent_rl_trajectories_collected_total[15m])) * 60", "{{agent_type}}"),
            ),
        ),
        Panel(
            title="By domain",
            queries=(("sum by (task_domain) (agent_rl_trajectories_collected_total)", "{{task_domain}}"),),
        ),
        Panel(
            title="Lost",
            unit="percentunit",
            about="Of the last hour's trajectories, those that could not be taken in, or came to nothing.",
            queries=(("loomrl:trajectories_lost:1h / (loomrl:trajectories_tried:1h > 0)", "lost"),),
        ),
        Panel(title="Turns of a trajectory", queries=_quantiles("agent_rl_trajectory_length")),
        Panel(title="Reward of a trajectory", queries=_quantiles("agent_rl_trajectory_reward")),
        Panel(
            title="Feedback",
            unit="cpm",
            queries=(("sum by (source, kind) (rate(loomrl_feedback_total[15m])) * 60", "{{source}} {{kind}}"),),
        ),
        Panel(
            title="Trainings",
            kind="bargauge",
            queries=(("sum by (status) (agent_rl_training_jobs_total)", "{{status}}"),),
        ),
        Panel(
            title="Open trainings",
            queries=(("sum by (endpoint, status) (loomrl_training_jobs_open)", "{{endpoint}} {{status}}"),),
        ),
        Panel(
            title="Failures in a row",
            queries=(("max by (endpoint) (loomrl_training_failures_in_a_row)", "{{endpoint}}"),),
        ),
        Panel(
            title="Duration of a training",
            unit="s",
            queries=_quantiles("agent_rl_training_duration_seconds", window="30d"),
        ),
        Panel(title="Samples of a training", queries=_quantiles("agent_rl_training_samples", window="30d")),
        Panel(
            title="Alerts of coordinators",
            queries=(("sum by (alert) (increase(loomrl_alerts_total[1h])) > 0 or on () vector(0)", "{{alert}}"),),
        ),
        Panel(
            title="Bus",
            queries=(
                ("max by (bus) (loomrl_bus_behind)", "behind {{bus}}"),
                ("max by (process) (loomrl_bus_away_seconds)", "{{process}} away, s"),
                ("sum(rate(loomrl_bus_published_total[5m]))", "published a second"),
                ("sum by (outcome) (rate(loomrl_bus_taken_total[5m]))", "{{outcome}} a second"),
            ),
        ),
        Panel(
            title="Rejected",
            queries=(("sum by (cause) (increase(loomrl_trajectories_rejected_total[1h]))", "{{cause}}"),),
        ),
        Panel(
            title="Last judged",
            unit="s",
            queries=(("max by (endpoint) (loomrl_reward_age_seconds)", "{{endpoint}}"),),
        ),
    ),
)

MODEL = Board(
    uid="loomrl-model-performance",
    title="Model Performance",
    choice=("endpoint", "loomrl_endpoint_share"),
    panels=(
        Panel(title="Reward", queries=(("max by (model_version) (agent_rl_model_reward_mean)", BY_MODEL),)),
        Panel(
            title="Evidence of rewards",
            unit="percentunit",
            queries=(('max by (endpoint) (loomrl_reward_confidence{endpoint=~"$endpoint"})', "{{endpoint}}"),),
        ),
        Panel(
            title="Benchmarks",
            kind="bargauge",
            unit="percentunit",
            queries=(
                (
                    "max by (model_version, task_type) (agent_rl_model_benchmark_score)",
                    "{{model_version}} {{task_type}}",
                ),
            ),
        ),
        Panel(
            title="Error rate",
            unit="percentunit",
            queries=(("model_version:agent_rl_model_errors:ratio5m", BY_MODEL),),
        ),
        Panel(
            title="Error rate, in the worst gateway",
            unit="percentunit",
            queries=(("max by (model_version) (agent_rl_model_error_rate)", BY_MODEL),),
        ),
        Panel(
            title="Errors",
            queries=(("sum by (model_version) (increase(agent_rl_model_errors_total[1h]))", BY_MODEL),),
        ),
        Panel(
            title="First token, 95 of 100",
            unit="s",
            queries=(('endpoint_arm:loomrl_gateway_first_token_seconds:p95_5m{endpoint=~"$endpoint"}', BY_ARM),),
        ),
        Panel(
            title="Answer, 95 of 100",
            unit="s",
            queries=(('endpoint_arm:loomrl_gateway_latency_seconds:p95_5m{endpoint=~"$endpoint"}', BY_ARM),),
        ),
        Panel(
            title="Tokens a second, of an answer",
            queries=(
                (
                    "histogram_quantile(0.5, sum by (endpoint, arm, le) "
                    '(rate(loomrl_gateway_tokens_per_second_bucket{endpoint=~"$endpoint"}[5m])))',
                    BY_ARM,
                ),
            ),
        ),
        Panel(
            title="Tokens a second, of all answers",
            queries=(
                (
                    'sum by (endpoint, kind) (rate(loomrl_gateway_tokens_total{endpoint=~"$endpoint"}[5m]))',
                    "{{endpoint}} {{kind}}",
                ),
            ),
        ),
        Panel(
            title="Violating answers",
            unit="percentunit",
            queries=(
                (
                    'sum by (endpoint, arm) (rate(loomrl_gateway_violating_calls_total{endpoint=~"$endpoint"}[5m])) / '
                    '(sum by (endpoint, arm) (rate(loomrl_gateway_calls_total{endpoint=~"$endpoint"}[5m])) > 0)',
                    BY_ARM,
                ),
            ),
        ),
        *VERSIONS,
        Panel(
            title="Hits of rules",
            queries=(
                (
                    'sum by (rule, then) (increase(loomrl_violations_total{endpoint=~"$endpoint"}[1h]))',
                    "{{rule}} {{then}}",
                ),
            ),
        ),
    ),
)

DEPLOYMENT = Board(
    uid="loomrl-deployment-health",
    title="Deployment Health",
    choice=("endpoint", "loomrl_endpoint_share"),
    panels=(
        Panel(
            title="Traffic by version",
            unit="percent",
            queries=(("max by (model_version) (agent_rl_model_traffic_percentage)", BY_MODEL),),
        ),
        Panel(
            title="Shares of arms",
            unit="percentunit",
            queries=(
                (
                    'max by (endpoint, arm, role) (loomrl_endpoint_share{endpoint=~"$endpoint"})',
                    "{{endpoint}} {{arm}} ({{role}})",
                ),
            ),
        ),
        Panel(
            title="Traffic as it is",
            unit="percentunit",
            about="Share of the calls that each arm was given.",
            queries=(
                (
                    'sum by (endpoint, arm) (endpoint_arm:loomrl_gateway_calls:rate5m{endpoint=~"$endpoint"}) / on '
                    "(endpoint) group_left sum by (endpoint) (endpoint_arm:loomrl_gateway_calls:rate5m)",
                    BY_ARM,
                ),
            ),
        ),
        Panel(
            title="Releases",
            kind="bargauge",
            queries=(("sum by (status) (agent_rl_model_deployments_total)", "{{status}}"),),
        ),
        *RELEASES,
        Panel(
            title="Verdicts of the gate",
            kind="bargauge",
            queries=(("sum by (outcome) (loomrl_verdicts_total)", "{{outcome}}"),),
        ),
        Panel(
            title="Open release",
            unit="s",
            queries=(('max by (endpoint) (loomrl_release_open_seconds{endpoint=~"$endpoint"})', "{{endpoint}}"),),
        ),
        Panel(
            title="Calls a second",
            unit="reqps",
            queries=(
                (
                    'sum by (endpoint, outcome) (rate(loomrl_gateway_calls_total{endpoint=~"$endpoint"}[5m]))',
                    "{{endpoint}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            title="Errors by arm",
            unit="percentunit",
            queries=(('endpoint_arm:loomrl_gateway_errors:ratio5m{endpoint=~"$endpoint"}', BY_ARM),),
        ),
        Panel(
            title="Refused requests a second",
            queries=(("sum by (cause) (rate(loomrl_gateway_refusals_total[5m]))", "{{cause}}"),),
        ),
        Panel(
            title="Open and waiting calls",
            queries=(
                ('sum by (endpoint) (loomrl_gateway_busy{endpoint=~"$endpoint"})', "{{endpoint}} open"),
                ('sum by (endpoint) (loomrl_gateway_waiting{endpoint=~"$endpoint"})', "{{endpoint}} waiting"),
                ('sum by (endpoint) (loomrl_gateway_queue{endpoint=~"$endpoint"})', "{{endpoint}} room"),
            ),
        ),
        Panel(
            title="Processes",
            queries=(('max by (endpoint, role) (loomrl_processes{endpoint=~"$endpoint"})', "{{endpoint}} {{role}}"),),
        ),
        Panel(
            title="Alarms",
            queries=(('max by (endpoint, alert) (loomrl_alarm{endpoint=~"$endpoint"})', "{{endpoint}} {{alert}}"),),
        ),
        Panel(
            title="Memory of gateways, buses and trainings",
            unit="bytes",
            queries=(('process_resident_memory_bytes{job="loomrl"}', "{{role}} {{instance}}"),),
        ),
        Panel(
            title="CPU of gateways, buses and trainings",
            queries=(('rate(process_cpu_seconds_total{job="loomrl"}[5m])', "{{role}} {{instance}}"),),
        ),
        Panel(
            title="Wanted",
            queries=(('max by (endpoint) (loomrl_endpoint_served{endpoint=~"$endpoint"})', "{{endpoint}}"),),
        ),
    ),
)

TRAINING = Board(
    uid="loomrl-training",
    title="LoomRL Training",
    choice=("run", "loomrl_training_step"),
    panels=(
        Panel(title="Step", queries=(('loomrl_training_step{run=~"$run"}', "{{run}}"),)),
        Panel(
            title="Success or return",
            queries=(
                _run("success", "{{run}} success"),
                _run("return_training", "{{run}} return"),
                _run("return_evaluation", "{{run}} return, greedy"),
            ),
        ),
        Panel(
            title="Reward",
            queries=(_run("reward_total"), ('loomrl_training_reward_part{run=~"$run"}', "{{run}} {{part}}")),
        ),
        Panel(title="Entropy", queries=(_run("policy_entropy"),)),
        Panel(title="KL", queries=(_run("policy_kl", "{{run}}"), _run("policy_step_kl", "{{run}} of an update"))),
        Panel(
            title="Losses",
            queries=(_run("policy_loss", "{{run}} policy"), _run("value_loss", "{{run}} value")),
        ),
        Panel(title="Gradient", queries=(_run("gradient_norm"),)),
        Panel(title="Learning rate", unit="sci", queries=(_run("learning_rate"),)),
        Panel(title="Clipped", unit="percentunit", queries=(_run("policy_clip_fraction"),)),
        Panel(
            title="Drift of engine and learner",
            queries=(_run("policy_drift", "{{run}}"), _run("policy_importance", "{{run}} weight")),
        ),
        Panel(
            title="Staleness, updates",
            queries=(_run("staleness_mean", "{{run}} mean"), _run("staleness_max", "{{run}} most")),
        ),
        Panel(
            title="Length",
            queries=(
                _run("length_action", "{{run}} tokens written"),
                _run("length_prompt", "{{run}} tokens read"),
                _run("length_episode", "{{run}} steps"),
            ),
        ),
        Panel(
            title="Throughput",
            queries=(
                _run("throughput_engine_tokens_per_s", "{{run}} tokens/s, engines"),
                _run("throughput_learner_tokens_per_s", "{{run}} tokens/s, learner"),
                _run("throughput_env_steps_per_s", "{{run}} steps/s"),
            ),
        ),
        Panel(
            title="Where an update's time goes",
            unit="percentunit",
            queries=tuple(
                _share(phase, f"{{{{run}}}} {phase}")
                for phase in ("rollout", "learn", "publish", "hub", "evaluate", "checkpoint", "idle", "engine_idle")
            ),
        ),
        Panel(
            title="Groups and failures",
            queries=(
                _run("groups_dropped", "{{run}} dropped"),
                _run("groups_without_signal", "{{run}} share without signal"),
                _run("failures", "{{run}} failures"),
            ),
        ),
    ),
)
BOARDS = (OVERVIEW, MODEL, DEPLOYMENT, TRAINING)


def texts() -> dict[Path, str]:
    """The files and what is in them."""
    return {FOLDER / f"{board.uid}.json": json.dumps(board.json(), indent=1) + "\n" for board in BOARDS}


if __name__ == "__main__":
    for file, text in texts().items():
        file.write_text(text)
