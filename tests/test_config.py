import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl import PPOConfig
from loomrl.config import (
    SAC,
    AdaptiveCurriculum,
    ControlExperiment,
    Experiment,
    Root,
    Sampling,
    ServedArm,
    ServingExperiment,
)
from loomrl.errors import ConfigError
from loomrl.experiments.shipped import resolve
from loomrl.load import dump, load, load_any, parse_assignments, parse_yaml, to_yaml
from loomrl.schema import Tree, merge, nest


def fault(assignments: list[str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_any([], ["name=x", *assignments])
    return str(caught.value)


SERVING = ["kind=serving", "arms=[{what: math-1}]"]


@pytest.mark.parametrize(
    ("python", "base", "changes"),
    [
        (
            Experiment(name="x", hub={"lease_s": 30}, curriculum={"kind": "adaptive", "eta": 0.1}),
            [],
            {"hub.lease_s": 30, "curriculum.kind": "adaptive", "curriculum.eta": 1e-1},
        ),
        (
            ControlExperiment(name="x", algorithm=SAC(batch=64), train={"steps": 10}),
            ["kind=control"],
            {"algorithm.kind": "sac", "algorithm.batch": 64, "train.steps": 10},
        ),
        (ServingExperiment(name="x", arms=(ServedArm(what="math-1"),), port=9000), SERVING, {"port": 9000}),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_python_command_line_file_and_dotted_override_reach_the_same_experiment(
    tmp_path: Path, python: Root, base: list[str], changes: dict[str, object]
) -> None:
    words = ["name=x", *base]
    command = load_any([], [*words, *(f"{path}={value}" for path, value in changes.items())])
    (tmp_path / "e.yaml").write_text(to_yaml(merge(parse_assignments(words), nest(changes))))
    (tmp_path / "resolved.yaml").write_text(dump(python))
    read = [load_any([tmp_path / name]) for name in ("e.yaml", "resolved.yaml")]
    made = [command, load_any([], words).override(changes), *read]
    assert all(type(each) is type(python) for each in made)
    assert made == [python] * 4
    assert {each.sha256 for each in made} == {python.sha256}


def test_settings_given_to_a_class_are_explained_as_those_of_a_file_are() -> None:
    with pytest.raises(ConfigError, match=r"hub\.lease=30: no such setting here.*Did you mean 'lease_s'"):
        Experiment(name="x", hub={"lease": 30})
    with pytest.raises(ConfigError, match=r"Sampling: 1 fault\(s\)\n  temprature=1: .*Did you mean 'temperature'"):
        Sampling(temprature=1)
    with pytest.raises(ConfigError, match=r"PPOSettings: .*\n  gamma=0\.9: .*Write an Experiment"):
        PPOConfig(gamma=0.9)


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        ([], "seed=1 hub.quorum=0.9 rollout.group_size=4 environments.0.weight=2 store_url=sqlite:///b.db"),
        (
            SERVING,
            "port=1 gateways.count=3 engine.slots=2 record.mode=after keys=required replicas.most=2 "
            "arms.0.follow=newest origins=['https://a.example'] limits.body_mb=1 endpoint=y",
        ),
    ],
)
def test_any_changed_setting_changes_the_hash(base: list[str], changes: str) -> None:
    words = changes.split()
    assert (
        len({load_any([], ["name=x", *base, *word]).sha256 for word in ([], *([each] for each in words))})
        == len(words) + 1
    )


def test_later_files_win_over_earlier_ones_and_assignments_over_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\nseed: 1\nhub: {lease_s: 5}\n")
    (tmp_path / "b.yaml").write_text("seed: 2\nhub: {quorum: 0.5}\n")
    experiment = load([tmp_path / "a.yaml", tmp_path / "b.yaml"], ["seed=3"])
    assert (experiment.name, experiment.seed, experiment.hub.lease_s, experiment.hub.quorum) == ("a", 3, 5, 0.5)


def test_one_setting_of_the_default_variant_needs_no_kind() -> None:
    assert load([], ["name=x", "curriculum.level=3"]).curriculum.level == 3  # type: ignore[union-attr]


def test_switching_the_kind_drops_what_belonged_to_the_old_variant() -> None:
    experiment = load([], ["name=x", "curriculum.level=3", "curriculum.kind=adaptive"])
    assert experiment.curriculum == AdaptiveCurriculum()


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (["hub.lease=3"], ["hub.lease=3", "lease_s", "Did you mean 'lease_s'?"]),
        (["curriculum.kind=adaptve"], ["curriculum.kind='adaptve'", "'fixed'", "Did you mean 'adaptive'?"]),
        (["curriculum.target=0.4"], ["curriculum.target=0.4", "no such setting here", "level"]),
        (["environments.0.wieght=2"], ["environments.0.wieght=2", "Did you mean 'weight'?"]),
        (["environments.4.weight=2"], ["environments.4", "1 entries"]),
        (["rollout.group_size=none"], ["rollout.group_size='none'", "valid integer"]),
        (["hub.quorum=.nan"], ["hub.quorum=nan", "finite"]),
        (["curriculum.kind=adaptive", "curriculum.first_level=9", "curriculum.last_level=3"],
         ["curriculum=", "first_level=9 is above last_level=3"]),
        (["algorithm.model.lora.dropout=0.1"],
         ["dropout=0.1 has no effect with warm_start.steps=0", "Leave it out"]),
        (["algorithm.sampling.entropies=true", "engine.kind=vllm"],
         ["entropies=true has no effect with engine.kind=vllm", "kind=torch"]),
        (["engine.graphs=true"], ["engine.graphs=true has no effect with placement.runner.gpus=0", "leave graphs out"]),
        (["placement.colocated=true", "rollout.runners=1", "rollout.publish_every=2", "hub.max_staleness=2",
          "train.checkpoint_every=2"], ["has no effect with rollout.publish_every=2", "Set 1"]),
        (["placement.colocated=true", "engine.kind=vllm"],
         ["colocated=true has no effect with engine.kind=vllm, engine.gpus=0", "sleeps on GPUs", "or kind=torch"]),
        (["placement.colocated=true", "engine.kind=vllm", "engine.gpus=1", "engine.memory_gb=4"],
         ["has no effect with engine.gpus=1 and algorithm.learners.gpus=0", "such as 0.5"]),
        (["placement.colocated=true", "engine.kind=vllm", "engine.gpus=0.5", "algorithm.learners.gpus=0.5"],
         ["engine.memory_gb=null: vLLM would take all of the GPU", "Set it"]),
        (["placement.colocated=true", "algorithm.learners.gpus=1"],
         ["colocated=true has no effect with placement.runner.gpus=0 and algorithm.learners.gpus=1", "such as 0.5"]),
        (["algorithm.kind=grpo", "algorithm.ratio=sequence"],
         ["ratio=sequence has no effect with optimizer.epochs=1 and minibatches=1"]),
        (["algorithm.surrogate=cispo", "algorithm.optimizer.epochs=2", "algorithm.clip.dual=3"],
         ["clip.dual=3 has no effect with surrogate=cispo"]),
        (["hub"], ["'hub'", "path=value"]),
        (["hub..lease_s=1"], ["'hub..lease_s'", "dotted path"]),
        (["seed=[1"], ["seed=[1", "not valid YAML"]),
    ],
)  # fmt: skip
def test_wrong_setting_is_named_with_value_choices_and_remedy(assignments: list[str], said: list[str]) -> None:
    message = fault(assignments)
    assert all(part in message for part in said), message


def test_every_fault_is_reported_at_once_and_once() -> None:
    assert fault(["environments.0.wieght=2"]).startswith("settings: 1 fault(s)")
    with pytest.raises(ConfigError, match="name: required"):
        load([], ["seed=1"])
    assert fault(["hub.quorum=7", "rollout.runners=-1"]).startswith("settings: 2 fault(s)")


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2", "a: 1\na: 2", "\tb: 1", "a: !!python/object:os.system x", "3"])
def test_malformed_file_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        load([tmp_path / "bad.yaml"])


def test_missing_and_binary_files_are_config_errors(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.yaml", "binary.yaml"):
        with pytest.raises(ConfigError, match=name):
            load([tmp_path / name])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_back_as_a_number(value: float) -> None:
    assert parse_yaml(f"x: {value!r}", origin="t") == {"x": value}
    assert parse_yaml(f"x: {value:e}", origin="t")["x"] == pytest.approx(value, rel=1e-6)


def test_yaml_keeps_words_and_numbers_apart() -> None:
    read = parse_yaml("{a: 1e-4, b: no, c: on, d: true, e: 12, f: .5, g: 1.2.3, h: 1e, i: +3, j: '1'}", origin="t")
    assert read == {
        "a": 1e-4, "b": "no", "c": "on", "d": True, "e": 12, "f": 0.5, "g": "1.2.3", "h": "1e", "i": 3, "j": "1",
    }  # fmt: skip


LEAVES = st.one_of(st.integers(), st.text(max_size=3))
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@settings(max_examples=30)
@given(MAPPINGS, MAPPINGS)
def test_merging_keeps_every_leaf_of_the_later_tree_and_all_that_it_leaves_alone(base: Tree, over: Tree) -> None:
    merged = merge(base, over)
    assert merge(merged, over) == merged
    assert all(merged[key] == base[key] for key in base.keys() - over.keys())
    assert all(merged[key] == over[key] for key in over if over[key] == {} or not isinstance(over[key], dict))


@given(st.dictionaries(st.from_regex(r"[a-c](\.[a-c]){0,2}", fullmatch=True), st.integers(), max_size=4))
def test_the_last_dotted_assignment_is_there_to_read(dotted: dict[str, int]) -> None:
    tree = nest(dotted)
    if dotted:
        path, value = list(dotted.items())[-1]
        node: object = tree
        for key in path.split("."):
            node = node[key]
        assert node == value


def test_minimum_shares_above_one_are_refused() -> None:
    shares = "environments=[{id: Math, min_share: 0.6}, {id: Game, min_share: 0.6}]"
    assert "1.2" in fault([shares])
    parts = {"Math": 0.46, "Game": 0.11, "Code": 0.32, "Logic": 0.11}
    whole = ", ".join(f"{{id: {id}, min_share: {share}}}" for id, share in parts.items())
    assert load([], ["name=x", f"environments=[{whole}]"]).environments  # they add up to 1.0000000000000002


def test_password_is_kept_out_of_what_is_recorded() -> None:
    message = fault(["store_url=postgresql://u:secret@h/d"])
    assert "~/.pgpass" in message
    assert "secret" not in message
    assert load([], ["name=x", "store_url=postgresql://u@h/d"]).store_url == "postgresql://u@h/d"


def test_experiments_are_frozen_and_finite() -> None:
    experiment = load([], ["name=x"])
    with pytest.raises(ValueError, match="frozen"):
        experiment.seed = 3
    assert math.isfinite(experiment.hub.lease_s)


CONTROL = ["kind=control"]
FIXED = "algorithm={kind: weave, objectives: [a, b], preference: {kind: fixed, weights: [0.25, 0.75]}}"
LOGGED = [*CONTROL, "data={minari: a/b-v0}"]
OPENAI = "engine={kind: openai, url: 'http://h/v1', model: m}"
STAGED = "curriculum={kind: stages, stages: [{settings: {}, threshold: {reward: 1}}]}"


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (["kind=contrl"], "kind='contrl' is unknown.*Did you mean 'control'"),
        ([*CONTROL, "environment.gravity=3"], "environment.gravity=3: no such setting here"),
        ([*CONTROL, "algorithm.kind=sac", "algorithm.epochs=3"], "algorithm.epochs=3: no such setting here"),
        ([*CONTROL, "algorithm.kind=grpo"], "algorithm.kind='grpo': unknown. Known: 'ppo', 'sac', 'dqn', 'weave'"),
        (
            [*CONTROL, "curriculum={kind: ramp, begin: {g: 1}, threshold: {reward: 1}}"],
            "give environment.settings.g",
        ),
        ([*CONTROL, "train.stop.decline=0"], "train.stop.decline=0: Input should be greater than 0"),
        ([*CONTROL, "algorithm.kind=iql"], "iql learns from logged episodes: name them"),
        ([*LOGGED, "algorithm.kind=ppo"], "data has no effect with ppo"),
        ([*LOGGED, "algorithm.kind=sac"], "data has no effect with sac"),
        ([*LOGGED, "algorithm.kind=bc", "rollout.runners=1"], "rollout.runners has no effect: bc takes no step"),
        ([*LOGGED, "algorithm.kind=iql", "rollout.steps=8"], "rollout.steps has no effect: iql takes no step"),
        ([*LOGGED, "algorithm.kind=iql", "train.stop.target=1"], "train.stop.target has no effect"),
        ([*LOGGED, "algorithm.kind=bc", STAGED], "curriculum has no effect"),
        ([*LOGGED, "algorithm.kind=bc", "algorithm.normalize_rewards=true"], "normalize_rewards=True has no effect"),
        ([*LOGGED, "algorithm.kind=iql", "algorithm.network.shared=true"], "have a tower each"),
        ([*LOGGED, "algorithm.kind=iql", "algorithm.network.memory={kind: gru}"], "iql learns from single steps"),
        ([*LOGGED, "algorithm.kind=bc", "algorithm.network.memory={kind: gru}"], "bc learns from single steps"),
        (
            [*LOGGED, "algorithm={kind: iql, online: {replay: {prioritized: {}}}}"],
            "replay.prioritized has no effect: iql draws evenly",
        ),
        ([*CONTROL, "algorithm.kind=bc", "data={}"], "name either minari"),
        ([*CONTROL, "algorithm.kind=bc", "data={minari: a, dataset: b}"], "name either minari"),
        ([*CONTROL, "evaluation.preferences=5"], "a scalar reward has no front"),
        ([*CONTROL, "evaluation.picture=x.svg"], "a front has two objectives or more"),
        ([*CONTROL, "evaluation.picture=x.png"], "evaluation.picture='x.png'"),
        (
            [*CONTROL, FIXED, "evaluation.preferences=5"],
            "preferences=5 has no effect: the preference is fixed",
        ),
        ([*CONTROL, "algorithm={kind: weave, experts: 0}"], "algorithm.experts=0: Input should be greater"),
        (
            [*CONTROL, "algorithm={kind: weave, scalarisation: {kind: chebyshev}}"],
            "scalarisation has no effect without",
        ),
        ([*CONTROL, "algorithm={kind: weave, preference: {kind: fixed}}"], "algorithm.preference.weights: required"),
        (
            [*CONTROL, "algorithm={kind: weave, objectives: {task: {a: 0.5}, b: 1}}"],
            "task: the weights of its parts sum to 0.5, and must sum to 1",
        ),
        (
            [*CONTROL, "algorithm={kind: weave, objectives: [a], preference: {kind: constrained, least: {b: 0}}}"],
            "preference.least: no objective is named b; known: a",
        ),
        (
            [*CONTROL, "algorithm={kind: weave, preference: {kind: adaptive}}"],
            "no effect without objectives",
        ),
        ([*CONTROL, "algorithm={kind: ppo, experts: 2}"], "algorithm.experts=2: no such setting here"),
        ([*SERVING, "arms=[]"], "at least 1"),
        ([*SERVING, "arms=[{what: a}, {what: b}]"], "stable is there twice"),
        ([*SERVING, "arms=[{what: a}, {what: b, role: canary, share: 0.1}]"], r"sum to 1\.1"),
        ([*SERVING, "arms=[{what: a, role: canary}]"], "one stable arm.*none"),
        ([*SERVING, "replicas.least=2"], "must not be above most=1"),
        ([*SERVING, "replicas.load=8"], "load has no effect"),
        ([*SERVING, "gateways.count=1"], "greater than or equal to 2"),
        ([*SERVING, "record={mode: off, retention_days: 3}"], "retention_days has no effect"),
        ([*SERVING, "record={mode: off, archive_days: 3}"], "archive_days has no effect"),
        ([*SERVING, "origins=['*']"], "origins"),
        ([*SERVING, "port=70000"], "less than or equal to 65535"),
        ([*SERVING, OPENAI, "arms=[{what: a, share: 0.5}, {what: b, role: canary, share: 0.5}]"], "leave one"),
        ([*SERVING, OPENAI, "arms.0.follow=best"], "follow"),
        ([*SERVING, OPENAI, "replicas.gpus=1"], "gpus"),
    ],
)
def test_settings_that_make_no_sense_for_their_kind_are_named(assignments: list[str], said: str) -> None:
    assert re.search(said, fault(assignments), re.DOTALL)


def test_a_ramp_goes_in_equal_steps_to_the_environments_own_settings() -> None:
    ramp = {"kind": "ramp", "begin": {"g": 1.0, "agents": 2}, "steps": 2, "threshold": {"reward": 5}}
    environment = {"settings": {"g": 3.0, "agents": 6, "other": "x"}}
    stages = ControlExperiment(name="c", environment=environment, curriculum=ramp).stages
    assert [settings for settings, _ in stages] == [
        {"g": 1.0, "agents": 2, "other": "x"},
        {"g": 2.0, "agents": 4, "other": "x"},
        {"g": 3.0, "agents": 6, "other": "x"},
    ]
    assert [threshold is None for _, threshold in stages] == [False, False, True]


def test_iql_takes_the_settings_of_its_steps_once_it_goes_on_online() -> None:
    found = load(
        [], ["name=x", *LOGGED, "algorithm={kind: iql, online: {}}", "rollout.runners=1", "train.stop.target=1"]
    )
    assert found.rollout.runners == 1


def test_training_refuses_an_experiment_of_serving() -> None:
    for words in (["serving/control"], ["name=x", *SERVING]):
        with pytest.raises(ConfigError, match=r"is one of serving.*`loomrl serve` starts it"):
            resolve(words)
    with pytest.raises(ConfigError, match="one of serving"):
        load([], ["name=x", *SERVING])
