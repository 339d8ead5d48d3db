"""Each alert fires when its cause is planted in an otherwise healthy system, and only then (`promtool test rules`)."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from loomrl.cluster.monitoring import SHIPPED
from tests.needs import needs

pytestmark = [needs("Prometheus"), pytest.mark.system]
AT = "55m"
EARLY = "10m"
"""Before any cause."""
ARM = 'endpoint="e",arm="stable",model_version="r/1"'
CALLS, FIRST = f"loomrl_gateway_calls_total{{{ARM},outcome=", "loomrl_gateway_first_token_seconds_bucket"
VIOLATING = 'loomrl_gateway_violating_calls_total{endpoint="e",arm="stable"}'
HEALTHY: Mapping[str, str] = {
    'loomrl_training_failures_in_a_row{endpoint="e"}': "2x60",
    'loomrl_verdicts_total{outcome="refused"}': "3x60",
    'loomrl_verdicts_total{outcome="allowed"}': "0+1x60",
    'agent_rl_model_deployments_total{status="rolled_back"}': "1x60",
    'agent_rl_model_deployments_total{status="done"}': "0+1x60",
    'loomrl_trajectories_rejected_total{cause="contract"}': "7x60",
    'loomrl_sessions_lost{endpoint="e"}': "1x60",
    'agent_rl_trajectories_collected_total{agent_type="e",task_domain="general"}': "0+10x60",
    'loomrl_bus_away_seconds{process="outbox"}': "0x60",
    'loomrl_alarm{endpoint="e",alert="training_unreachable"}': "0x60",
    'loomrl_alarm{endpoint="e",alert="release_stuck"}': "0x60",
    'loomrl_processes{role="coordinator",endpoint="e"}': "1x60",
    'loomrl_processes{role="gateway",endpoint="e"}': "2x60",
    'loomrl_processes{role="front",endpoint="e"}': "1x60",
    'loomrl_processes{role="policy",endpoint="e"}': "1x60",
    'loomrl_processes{role="gateway",endpoint="over"}': "0x60",
    'loomrl_processes{role="trainer",endpoint=""}': "0x60",
    'loomrl_endpoint_served{endpoint="e"}': "1x60",
    'loomrl_endpoint_served{endpoint="over"}': "0x60",
    f'{CALLS}"answered"}}': "0+600x60",
    f'{CALLS}"failed"}}': "0+10x60",
    f'{CALLS}"refused"}}': "0+300x60",
    f"loomrl_gateway_violating_calls_total{{{ARM[: ARM.rindex(',')]}}}": "0+2x60",
    'loomrl_violations_total{endpoint="e",arm="stable",rule="mine",then="failed"}': "2x60",
    'loomrl_violations_total{endpoint="e",arm="stable",rule="mine",then="replace"}': "0+2x60",
    'loomrl_gateway_waiting{endpoint="e",instance="g:1"}': "700x60",
    'loomrl_gateway_queue{endpoint="e",instance="g:1"}': "1024x60",
    'loomrl_gateway_refusals_total{cause="full",instance="g:1"}': "5x60",
    f'{FIRST}{{endpoint="e",arm="stable",le="1"}}': "0+600x60",
    f'{FIRST}{{endpoint="e",arm="stable",le="10"}}': "0+610x60",
    f'{FIRST}{{endpoint="e",arm="stable",le="+Inf"}}': "0+610x60",
    'loomrl_reward_age_seconds{endpoint="e"}': "900x60",
    'loomrl_alerts_total{endpoint="e",alert="reward_hacking"}': "2x60",
    'loomrl_bus_behind{bus="nats"}': "50x60",
    'loomrl_training_updated_timestamp_seconds{run="r"}': "0+60x60",
    'loomrl_training_staleness_mean{run="r",part=""}': "2x60",
    'loomrl_training_policy_drift_alarm{run="r",part=""}': "0x60",
    'up{job="loomrl-record",instance="m:1"}': "1x60",
    'up{job="loomrl",role="gateway",instance="g:1"}': "1x60",
}
"""Series of an hour, a sample a minute."""
STABLE = {"endpoint": "e", "arm": "stable"}
CAUSES: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "TrainingsFail": ({'loomrl_training_failures_in_a_row{endpoint="e"}': "2x30 3x30"}, {"endpoint": "e"}),
    "ValidationFailed": ({'loomrl_verdicts_total{outcome="refused"}': "3x50 4x10"}, {}),
    "RolledBack": (
        {'agent_rl_model_deployments_total{status="rolled_back"}': "1x50 2x10"},
        {"status": "rolled_back"},
    ),
    "CollectionErrors": ({'loomrl_trajectories_rejected_total{cause="contract"}': "7x20 7+4x40"}, {}),
    "BusGone": ({'loomrl_bus_away_seconds{process="outbox"}': "0x40 0+60x20"}, {"process": "outbox"}),
    "TrainingUnreachable": (
        {'loomrl_alarm{endpoint="e",alert="training_unreachable"}': "0x40 1x20"},
        {"endpoint": "e", "alert": "training_unreachable"},
    ),
    "TrainingUnreachable: nobody coordinates": (
        {'loomrl_processes{role="coordinator",endpoint="e"}': "1x40 0x20"},
        {"endpoint": "e", "role": "coordinator"},
    ),
    "GatewayDown": (
        {'loomrl_processes{role="gateway",endpoint="e"}': "2x40 0x20"},
        {"endpoint": "e", "role": "gateway"},
    ),
    "PolicyDown": ({'loomrl_processes{role="policy",endpoint="e"}': "1x40 0x20"}, {"endpoint": "e", "role": "policy"}),
    "ArmErrors": ({f'{CALLS}"failed"}}': "0+10x30 300+60x30"}, {**STABLE, "model_version": "r/1"}),
    "NoTraffic": (
        {
            f'{CALLS}"answered"}}': "0+600x20 12000x40",
            f'{CALLS}"failed"}}': "0+10x20 200x40",
            f'{CALLS}"refused"}}': "0+300x20 6000x40",
            VIOLATING: "0+2x20 40x40",
        },
        {"endpoint": "e"},
    ),
    "QueueFull": (
        {'loomrl_gateway_waiting{endpoint="e",instance="g:1"}': "700x40 1000x20"},
        {"endpoint": "e", "instance": "g:1"},
    ),
    "QueueFull: and refuses": (
        {'loomrl_gateway_refusals_total{cause="full",instance="g:1"}': "5x40 5+9x20"},
        {"endpoint": "all", "instance": "g:1", "cause": "full"},
    ),
    "SlowFirstToken": (
        {f'{FIRST}{{endpoint="e",arm="stable",le="1"}}': "0+600x30 18000+100x30"},
        STABLE,
    ),
    "Violations": (
        {f"loomrl_gateway_violating_calls_total{{{ARM[: ARM.rindex(',')]}}}": "0+2x30 60+90x30"},
        STABLE,
    ),
    "RulesFail": (
        {'loomrl_violations_total{endpoint="e",arm="stable",rule="mine",then="failed"}': "2x50 3x10"},
        {"endpoint": "e", "rule": "mine"},
    ),
    "ReleaseStuck": (
        {'loomrl_alarm{endpoint="e",alert="release_stuck"}': "0x40 1x20"},
        {"endpoint": "e", "alert": "release_stuck"},
    ),
    "RewardsStale": ({'loomrl_reward_age_seconds{endpoint="e"}': "900x40 30000x20"}, {"endpoint": "e"}),
    "RewardHacking": (
        {'loomrl_alerts_total{endpoint="e",alert="reward_hacking"}': "2x50 3x10"},
        {"endpoint": "e", "alert": "reward_hacking"},
    ),
    "BusBehind": ({'loomrl_bus_behind{bus="nats"}': "50x30 20000x30"}, {"bus": "nats"}),
    "TrainingStalled": ({'loomrl_training_updated_timestamp_seconds{run="r"}': "0+60x20 1200x40"}, {"run": "r"}),
    "TrainingStale": (
        {'loomrl_training_staleness_mean{run="r",part=""}': "2x30 9x30"},
        {"run": "r"},
    ),
    "PolicyDrift": ({'loomrl_training_policy_drift_alarm{run="r",part=""}': "0x40 1x20"}, {"run": "r"}),
    "RecordUnreadable": (
        {'up{job="loomrl-record",instance="m:1"}': "1x50 0x10"},
        {"job": "loomrl-record", "instance": "m:1"},
    ),
    "NotScraped": (
        {'up{job="loomrl",role="gateway",instance="g:1"}': "1x50 0x10"},
        {"job": "loomrl", "role": "gateway", "instance": "g:1"},
    ),
}
"""Alert (: variant) → the series that change, and the labels of the alert."""


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((SHIPPED / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def bare(folder: Path) -> list[str]:
    """The rules without annotations, which promtool would compare."""
    alerts = yaml.safe_load((SHIPPED / "alerts.yaml").read_text())
    for group in alerts["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / "alerts.yaml").write_text(yaml.safe_dump(alerts))
    return [str(SHIPPED / "recording.yaml"), str(folder / "alerts.yaml")]


def scene(changed: Mapping[str, str], fires: str = "", labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What is expected of every alert, early and at the end."""
    assert changed.keys() <= HEALTHY.keys()
    known = rules()
    expected = []
    for name, rule in known.items():
        firing = [{"exp_labels": {**rule["labels"], **(labels or {})}}] if name == fires else []
        expected += [{"eval_time": EARLY, "alertname": name, "exp_alerts": []}]
        expected += [{"eval_time": AT, "alertname": name, "exp_alerts": firing}]
    series = [{"series": name, "values": values} for name, values in {**HEALTHY, **changed}.items()]
    return {"interval": "1m", "input_series": series, "alert_rule_test": expected}


def promtool(folder: Path, *scenes: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
    plan = {"rule_files": bare(folder), "evaluation_interval": "1m", "tests": list(scenes)}
    (folder / "test.yaml").write_text(yaml.safe_dump(plan))
    return subprocess.run(["promtool", "test", "rules", folder / "test.yaml"], capture_output=True, text=True)


def test_every_alert_has_a_cause_that_is_planted() -> None:
    assert {name.partition(":")[0] for name in CAUSES} == rules().keys()


def test_each_alert_fires_by_its_cause_and_no_other_does(tmp_path: Path) -> None:
    scenes = [scene(changed, name.partition(":")[0], labels) for name, (changed, labels) in CAUSES.items()]
    done = promtool(tmp_path, scene({}), *scenes)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_without_its_cause_is_noticed_by_these_tests(tmp_path: Path) -> None:
    done = promtool(tmp_path, scene({}, "BusGone", {"process": "outbox"}))
    assert done.returncode != 0


def test_rules_and_configuration_are_accepted() -> None:
    for kind, name in (("rules", "recording.yaml"), ("rules", "alerts.yaml"), ("config", "prometheus.yaml")):
        done = subprocess.run(["promtool", "check", kind, SHIPPED / name], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
