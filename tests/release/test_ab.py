"""A/B tests: assignment, exclusion, record, result."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.errors import ConfigError, StoreError
from loomrl.release.ab import AbReading, check_test
from loomrl.serving.split import assign_arm
from loomrl.store import LoomDB
from loomrl.store.ab_tests import AbTest, list_tests, show_test, start_test, stop_test
from loomrl.store.endpoints import Arm, Endpoint, Role, set_endpoint, show_endpoint
from loomrl.store.observations import Observation
from loomrl.store.releases import RELEASES, ReleaseRow
from tests.release.release_support import observed

TEST = AbTest(
    name="x", endpoint="e", layer="l", end=0.5, shares={"stable": 0.5, "new": 0.5},
    metric="success", better="higher", started_at=10.0,
)  # fmt: skip
NEW = Arm(name="new", policy="run/2")
UNITS = [f"u{n}" for n in range(2000)]


def arm_of(endpoint: Endpoint, tests: list[AbTest], unit: str) -> tuple[str, str]:
    found = assign_arm(endpoint, tests, unit)
    return found.arm.name, found.test


def endpoint(store: LoomDB, name: str = "e") -> None:
    set_endpoint(store, name, [Arm(name="stable", policy="run/1")], at=1.0)


def test_tests_of_a_layer_share_nobody_and_leave_others_to_the_endpoint(store: LoomDB) -> None:
    endpoint(store)
    first = start_test(store, TEST, [NEW])
    second = start_test(store, replace(TEST, name="y", shares={"stable": 0.2, "new": 0.8}, end=0.3))
    found = [arm_of(show_endpoint(store, "e"), [first, second], unit) for unit in UNITS]
    counts = {each: found.count(each) / len(UNITS) for each in set(found)}
    assert (second.start, second.end) == (0.5, 0.8)
    wanted = {("stable", "x"): 0.25, ("new", "x"): 0.25, ("stable", "y"): 0.06, ("new", "y"): 0.24, ("stable", ""): 0.2}
    assert counts == pytest.approx(wanted, abs=0.04)
    assert assign_arm(show_endpoint(store, "e"), [second, first], "u1") == assign_arm(
        show_endpoint(store, "e"), [first, second], "u1"
    )


def test_slots_are_taken_across_endpoints(store: LoomDB) -> None:
    endpoint(store)
    endpoint(store, "f")
    start_test(store, TEST, [NEW])
    with pytest.raises(StoreError, match=r"0\.6 of layer 'l' are not free: x leave 0\.5"):
        start_test(store, replace(TEST, name="y", endpoint="f", end=0.6), [NEW])
    assert start_test(store, replace(TEST, name="y", endpoint="f"), [NEW]).start == 0.5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "x"}, "'x' is running"),
        ({"shares": {"stable": 0.5, "niew": 0.5}}, "has no arm 'niew'.*Did you mean 'new'"),
        ({"layer": "m"}, "use --layer l"),
        ({"endpoint": "f"}, "does not serve"),
    ],
)
def test_a_test_that_cannot_be_changes_nothing(store: LoomDB, changed: dict[str, str], message: str) -> None:
    endpoint(store)
    start_test(store, TEST, [NEW])
    with pytest.raises(StoreError, match=message):
        start_test(store, replace(TEST, **{"name": "y", "end": 0.1, **changed}))  # type: ignore[arg-type]
    assert (show_endpoint(store, "e").revision, len(list_tests(store))) == (2, 1)


def test_an_open_release_comes_first(store: LoomDB) -> None:
    endpoint(store)
    row = ReleaseRow(release="e-1", number=1, endpoint="e", state="open", revision=1, reason="", who="", created_at=1.0)
    RELEASES.append(store, [row])
    with pytest.raises(StoreError, match="release e-1 is open"):
        start_test(store, TEST, [NEW])
    assert show_endpoint(store, "e").revision == 1


def test_a_stopped_test_takes_its_arms_with_it_or_leaves_the_winner(store: LoomDB) -> None:
    endpoint(store)
    start_test(store, TEST, [NEW])
    assert {arm.name: arm.share for arm in show_endpoint(store, "e").arms} == {"stable": 1.0, "new": 0.0}
    stop_test(store, "x", at=20.0)
    assert [arm.name for arm in show_endpoint(store, "e").arms] == ["stable"]
    with pytest.raises(StoreError, match="has stopped already"):
        stop_test(store, "x", at=21.0)
    assert start_test(store, replace(TEST, started_at=30.0), [NEW]).number == 3
    stop_test(store, "x", at=40.0, keep="new")
    (arm,) = show_endpoint(store, "e").arms
    assert (arm.name, arm.share, arm.role) == ("new", 1.0, Role.STABLE)
    assert show_test(store, "x").reason == "new is kept"


def test_a_test_without_one_of_its_arms_assigns_nobody() -> None:
    alone = Endpoint(name="e", revision=1, arms=(Arm(name="stable", policy="run/1"),), created_at=0.0)
    assert {arm_of(alone, [replace(TEST, end=1.0)], unit) for unit in UNITS} == {("stable", "")}


def test_wrong_shares_are_named() -> None:
    with pytest.raises(ConfigError, match=r"sum to 1, not 0\.9"):
        check_test(replace(TEST, shares={"stable": 0.5, "new": 0.4}))
    with pytest.raises(ConfigError, match="at least two arms"):
        check_test(replace(TEST, shares={"stable": 1.0}))


shares = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8)


@settings(max_examples=50)
@given(history=shares, seed=st.integers(0, 1000))
def test_raising_the_canary_moves_nobody_back_and_lowering_it_only_its_units(history: list[float], seed: int) -> None:
    units = [f"{seed}-{n}" for n in range(60)]
    before, share = dict.fromkeys(units, "stable"), 0.0
    for wanted in history:
        arms = (
            Arm(name="stable", policy="a", share=1 - wanted),
            Arm(name="canary", policy="b", share=wanted, role=Role.CANARY),
        )
        now = Endpoint(name="e", revision=1, arms=arms, created_at=0.0)
        after = {unit: arm_of(now, [], unit)[0] for unit in units}
        moved = {before[unit] for unit in units if before[unit] != after[unit]}
        assert moved <= ({"stable"} if wanted >= share else {"canary"})
        before, share = after, wanted


def observations(rates: dict[str, float], count: int, test: AbTest = TEST) -> list[Observation]:
    rng = random.Random(3)
    made = []
    for unit in range(count):
        arm = rng.choices(list(test.shares), list(test.shares.values()))[0]
        made.append(observed(arm, unit, "success", rng.random() < rates[arm], at=10.0 + unit, test=test.name))
    return made


def test_a_result_finds_what_is_better_and_nothing_between_equals() -> None:
    better, equal = AbReading(TEST), AbReading(TEST)
    better.observe(observations({"stable": 0.4, "new": 0.7}, 1500))
    equal.observe(observations({"stable": 0.6, "new": 0.6}, 1500))
    assert better.result().decision == "better: new"
    assert equal.result().decision == "nothing is proved yet"
    (finding,) = better.result().arms[1].findings
    assert finding.low < 0.3 < finding.high
    assert sum(arm.units for arm in better.result().arms) == 1500


def test_a_worse_arm_among_several_is_named_and_a_silent_guard_too() -> None:
    test = replace(TEST, shares={"stable": 0.4, "bad": 0.3, "good": 0.3}, guards={"error": 0.01})
    reading = AbReading(test)
    reading.observe(observations({"stable": 0.6, "bad": 0.3, "good": 0.62}, 3000, test))
    assert reading.result().decision == "worse: bad (success)"
    assert reading.result().silent == ("error",)


def test_units_that_do_not_fall_as_planned_make_the_result_invalid() -> None:
    reading = AbReading(TEST)
    found = observations({"stable": 0.6, "new": 0.6}, 3000)
    reading.observe(each for each in found if each.arm == "stable" or each.unit % 4)
    assert reading.result().is_mismatched
    assert reading.result().decision.startswith("not valid")


def test_observations_of_other_tests_and_of_an_earlier_one_of_the_name_do_not_count() -> None:
    reading = AbReading(TEST)
    reading.observe(replace(each, test="") for each in observations({"stable": 0.6, "new": 0.6}, 100))
    reading.observe(replace(each, at=9.0) for each in observations({"stable": 0.6, "new": 0.6}, 100))
    assert reading.result().silent == ("success",)
