"""Arms are sticky, get their shares, and a larger share takes sessions without giving one back."""

from hypothesis import given
from hypothesis import strategies as st

from loomrl.serving.split import choose_arm, shadows, stable
from loomrl.store.endpoints import Arm, Role

SESSIONS = [f"s{number}" for number in range(4000)]


def arms(canary: float, shadow: float = 0.0) -> list[Arm]:
    return [
        Arm(name="stable", policy="r/1", share=1 - canary),
        Arm(name="canary", policy="r/2", share=canary, role=Role.CANARY),
        Arm(name="shadow", policy="r/3", share=shadow, role=Role.SHADOW),
    ]


def on_canary(share: float) -> set[str]:
    found = ((session, choose_arm("e", arms(share), session)) for session in SESSIONS)
    return {session for session, arm in found if arm is not None and arm.name == "canary"}


@given(st.floats(0, 1), st.floats(0, 1))
def test_raising_a_share_moves_nobody_back(one: float, other: float) -> None:
    low, high = sorted((one, other))
    few, many = ({s for s in SESSIONS[:200] if _is_canary(share, s)} for share in (low, high))
    assert few <= many


def _is_canary(share: float, session: str) -> bool:
    arm = choose_arm("e", arms(share), session)
    return arm is not None and arm.name == "canary"


def test_shares_are_met() -> None:
    for share in (0.0, 0.1, 0.25, 0.5, 1.0):
        deviation = (share * (1 - share) / len(SESSIONS)) ** 0.5
        assert abs(len(on_canary(share)) / len(SESSIONS) - share) <= 4 * deviation


def test_endpoints_draw_independently() -> None:
    both = [(choose_arm("a", arms(0.5), s), choose_arm("b", arms(0.5), s)) for s in SESSIONS]
    same = sum(one == other for one, other in both) / len(both)
    assert 0.45 < same < 0.55


def test_a_shadow_hears_its_share_and_never_answers() -> None:
    heard = [s for s in SESSIONS if shadows("e", arms(0.1, 0.3), s)]
    assert 0.26 < len(heard) / len(SESSIONS) < 0.34
    assert {arm.name for s in SESSIONS if (arm := choose_arm("e", arms(0.1, 0.9), s))} == {"stable", "canary"}


def test_the_stable_arm_helps_out_and_without_shares_nobody_answers() -> None:
    found = stable(arms(1.0))
    assert found is not None
    assert found.name == "stable"
    assert choose_arm("e", [], "s") is None
