import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl import PPOConfig
from loomrl.config import AdaptiveCurriculum, Experiment, Sampling
from loomrl.errors import ConfigError
from loomrl.load import dump, load, parse_yaml
from loomrl.schema import Tree, merge, nest

NAMED = ["name=x"]


def fault(assignments: list[str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load([], assignments)
    return str(caught.value)


def test_python_command_line_file_and_sweep_reach_the_same_experiment(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("name: x\nhub: {lease_s: 30}\ncurriculum: {kind: adaptive, eta: 1e-1}\n")
    python = Experiment(name="x", hub={"lease_s": 30}, curriculum={"kind": "adaptive", "eta": 0.1})
    command = load([], ["name=x", "hub.lease_s=30", "curriculum.kind=adaptive", "curriculum.eta=1e-1"])
    sweep = load([], NAMED).override({"hub.lease_s": 30, "curriculum.kind": "adaptive", "curriculum.eta": 0.1})
    assert python == command == sweep == load([file])
    assert len({e.sha256 for e in (python, command, sweep, load([file]))}) == 1


def test_settings_given_to_a_class_are_explained_as_those_of_a_file_are() -> None:
    with pytest.raises(ConfigError, match=r"hub\.lease=30: no such setting here.*Did you mean 'lease_s'"):
        Experiment(name="x", hub={"lease": 30})
    with pytest.raises(ConfigError, match=r"Sampling: 1 fault\(s\)\n  temprature=1: .*Did you mean 'temperature'"):
        Sampling(temprature=1)
    with pytest.raises(ConfigError, match=r"PPOSettings: .*\n  gamma=0\.9: .*Write an Experiment"):
        PPOConfig(gamma=0.9)


def test_resolved_experiment_survives_a_file(tmp_path: Path) -> None:
    experiment = load([], ["name=x", "environments=[{id: Math, families: [algebra.linear]}]", "seed=7"])
    (tmp_path / "resolved.yaml").write_text(dump(experiment))
    assert load([tmp_path / "resolved.yaml"]).sha256 == experiment.sha256


def test_any_changed_setting_changes_the_hash() -> None:
    base = load([], NAMED)
    changed = [
        "seed=1",
        "hub.quorum=0.9",
        "rollout.group_size=4",
        "environments.0.weight=2",
        "store_url=sqlite:///b.db",
    ]
    assert len({base.sha256, *(load([], [*NAMED, c]).sha256 for c in changed)}) == len(changed) + 1


def test_later_files_win_over_earlier_ones_and_assignments_over_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\nseed: 1\nhub: {lease_s: 5}\n")
    (tmp_path / "b.yaml").write_text("seed: 2\nhub: {quorum: 0.5}\n")
    experiment = load([tmp_path / "a.yaml", tmp_path / "b.yaml"], ["seed=3"])
    assert (experiment.name, experiment.seed, experiment.hub.lease_s, experiment.hub.quorum) == ("a", 3, 5, 0.5)


def test_one_setting_of_the_default_variant_needs_no_kind() -> None:
    assert load([], [*NAMED, "curriculum.level=3"]).curriculum.level == 3  # type: ignore[union-attr]


def test_switching_the_kind_drops_what_belonged_to_the_old_variant() -> None:
    experiment = load([], [*NAMED, "curriculum.level=3", "curriculum.kind=adaptive"])
    assert experiment.curriculum == AdaptiveCurriculum()


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (["name=x", "hub.lease=3"], ["hub.lease=3", "lease_s", "Did you mean 'lease_s'?"]),
        (["name=x", "curriculum.kind=adaptve"], ["curriculum.kind='adaptve'", "'fixed'", "Did you mean 'adaptive'?"]),
        (["name=x", "curriculum.target=0.4"], ["curriculum.target=0.4", "no such setting here", "level"]),
        (["name=x", "environments.0.wieght=2"], ["environments.0.wieght=2", "Did you mean 'weight'?"]),
        (["name=x", "environments.4.weight=2"], ["environments.4", "1 entries"]),
        (["name=x", "rollout.group_size=none"], ["rollout.group_size='none'", "valid integer"]),
        (["name=x", "hub.quorum=.nan"], ["hub.quorum=nan", "finite"]),
        (["name=x", "curriculum.kind=adaptive", "curriculum.first_level=9", "curriculum.last_level=3"],
         ["curriculum=", "first_level=9 is above last_level=3"]),
        (["seed=1"], ["name: required"]),
        (["name=x", "algorithm.model.lora.dropout=0.1"],
         ["dropout=0.1 has no effect with warm_start.steps=0", "Leave it out"]),
        (["name=x", "algorithm.sampling.entropies=true", "engine.kind=vllm"],
         ["entropies=true has no effect with engine.kind=vllm", "kind=torch"]),
        (["name=x", "algorithm.kind=grpo", "algorithm.ratio=sequence"],
         ["ratio=sequence has no effect with optimizer.epochs=1 and minibatches=1"]),
        (["name=x", "algorithm.surrogate=cispo", "algorithm.optimizer.epochs=2", "algorithm.clip.dual=3"],
         ["clip.dual=3 has no effect with surrogate=cispo"]),
        (["name=x", "hub"], ["'hub'", "path=value"]),
        (["name=x", "hub..lease_s=1"], ["'hub..lease_s'", "dotted path"]),
        (["name=x", "seed=[1"], ["seed=[1", "not valid YAML"]),
    ],
)  # fmt: skip
def test_wrong_setting_is_named_with_value_choices_and_remedy(assignments: list[str], said: list[str]) -> None:
    message = fault(assignments)
    assert all(part in message for part in said), message


def test_one_fault_is_reported_once() -> None:
    assert fault(["name=x", "environments.0.wieght=2"]).startswith("settings: 1 fault(s)")


def test_every_fault_is_reported_at_once() -> None:
    assert fault(["hub.quorum=7", "rollout.runners=-1"]).startswith("settings: 3 fault(s)")


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
            assert isinstance(node, dict)
            node = node[key]
        assert node == value


def test_minimum_shares_above_one_are_refused() -> None:
    shares = "environments=[{id: Math, min_share: 0.6}, {id: Game, min_share: 0.6}]"
    assert "1.2" in fault(["name=x", shares])
    parts = {"Math": 0.46, "Game": 0.11, "Code": 0.32, "Logic": 0.11}
    whole = ", ".join(f"{{id: {id}, min_share: {share}}}" for id, share in parts.items())
    assert load([], [*NAMED, f"environments=[{whole}]"]).environments  # they add up to 1.0000000000000002


def test_password_is_kept_out_of_what_is_recorded() -> None:
    message = fault(["name=x", "store_url=postgresql://u:secret@h/d"])
    assert "~/.pgpass" in message
    assert "secret" not in message
    assert load([], [*NAMED, "store_url=postgresql://u@h/d"]).store_url == "postgresql://u@h/d"


def test_experiments_are_frozen_and_finite() -> None:
    experiment = load([], NAMED)
    with pytest.raises(ValueError, match="frozen"):
        experiment.seed = 3
    assert math.isfinite(experiment.hub.lease_s)
