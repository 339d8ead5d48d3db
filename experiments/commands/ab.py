"""`loomrl ab …`: A/B tests of an endpoint's arms."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from loomrl.errors import ConfigError
from loomrl.experiments.commands.face import nouns, open_face_store, without
from loomrl.experiments.commands.listing import add_list
from loomrl.experiments.commands.output import emit
from loomrl.record.catalogue import ab_as_json
from loomrl.record.detail import AB_TEST

if TYPE_CHECKING:
    from loomrl.store import LoomDB
    from loomrl.store.endpoints import Arm

app = nouns("A/B tests: compare arms of an endpoint on a part of its users.")
DAY_S = 86_400.0
Name = Annotated[str, typer.Argument(help="The test's name.")]


@app.command()
def create(  # noqa: PLR0913 - options
    name: Name,
    arm: Annotated[
        list[str],
        typer.Option(help="NAME=WHAT:SHARE, or NAME:SHARE for an existing arm; the first is the baseline."),
    ],
    endpoint: Annotated[str, typer.Option(help="The endpoint's name.")] = "policy",
    metric: Annotated[str, typer.Option(help="The outcome that decides.")] = "success",
    better: Annotated[str, typer.Option(help="Which is better: higher or lower.")] = "higher",
    bounds: Annotated[str, typer.Option(metavar="LOW:HIGH", help="The metric's least and greatest value.")] = "0:1",
    guard: Annotated[
        list[str] | None, typer.Option(help="METRIC or METRIC:MARGIN, which must not get worse; repeatable.")
    ] = None,
    layer: Annotated[str, typer.Option(help="Tests of one layer share no unit.")] = "default",
    share: Annotated[float, typer.Option(help="The test's share of the layer.")] = 1.0,
    days: Annotated[float | None, typer.Option(help="Days until it ends by itself.")] = None,
) -> None:
    """Begin a test: users (or sessions) of its share of the layer are divided among the arms, each for good."""
    from loomrl.errors import unknown
    from loomrl.release.ab import check_test
    from loomrl.store.ab_tests import AbTest, start_test

    if better not in ("higher", "lower"):
        raise ConfigError("--better: " + unknown("direction", better, ("higher", "lower")))
    low, high = _bounds(bounds)
    now = time.time()
    with open_face_store() as db:
        shares, added = _arms(arm, db)
        test = AbTest(
            name=name,
            endpoint=endpoint,
            layer=layer,
            end=share,
            shares=shares,
            metric=metric,
            better=better,
            low=low,
            high=high,
            guards=dict(_guard(text) for text in guard or ()),
            started_at=now,
            until=None if days is None else now + DAY_S * days,
        )
        check_test(test)
        started = start_test(db, test, added)
    said = f"A/B test {name} runs on {endpoint}, slots {started.start:g} to {started.end:g} of layer {layer}."
    emit(ab_as_json(started), said)


add_list(app, AB_TEST)


@app.command()
@without("--store")
def plan(
    baseline: Annotated[float, typer.Option(help="The metric's mean today, within 0..1.")],
    effect: Annotated[float, typer.Option(help="The difference that must not be missed, such as 0.05.")],
    deviation: Annotated[float | None, typer.Option(help="Deviation of a unit; leave it out for a rate.")] = None,
    share: Annotated[float, typer.Option(help="The new arm's share of both arms.")] = 0.5,
    arms: Annotated[int, typer.Option(min=2, help="Arms of the test: all share one error rate.")] = 2,
    power: Annotated[float, typer.Option(help="The chance to find the effect.")] = 0.8,
) -> None:
    """Say how many units a test needs, by simulating it, looks at any time included."""
    from loomrl.release.ab import ERROR_RATE
    from loomrl.release.planning import Effect, plan_size

    wanted = Effect(mean=baseline, difference=effect, deviation=deviation)
    rate = ERROR_RATE / 2 / (arms - 1)
    size = plan_size(wanted, share=share, error_rate=rate, power=power)
    said = (
        f"{size.baseline + size.challenger} units: {size.challenger} of the new arm and {size.baseline} of the "
        f"baseline find it with power {power:g}; half of such tests end by {size.median} units of the new arm."
    )
    emit(asdict(size), said)


def _arms(texts: list[str], db: "LoomDB") -> "tuple[dict[str, float], list[Arm]]":
    """Shares by arm, and the arms that are new to the endpoint."""
    from loomrl.experiments.arms import parse_arms

    shares: dict[str, float] = {}
    added: list[Arm] = []
    for text in texts:
        if "=" in text:
            (arm,) = parse_arms([text], db)
            name = arm.name
            share = arm.share
            added.append(arm)
        else:
            name, _, written = text.rpartition(":")
            share = _number(written, f"--arm {text!r}: write NAME=WHAT:SHARE or NAME:SHARE")
        if not name or name in shares:
            raise ConfigError(f"--arm {text!r}: every arm needs a name of its own, such as new=RUN/7:0.5.")
        shares[name] = share
    return shares, added


def _guard(text: str) -> tuple[str, float]:
    metric, _, margin = text.partition(":")
    return metric, _number(margin, f"--guard {text!r}: write METRIC or METRIC:MARGIN") if margin else 0.0


def _bounds(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    wanted = f"--bounds {text!r}: write LOW:HIGH, such as 0:1"
    return _number(low, wanted), _number(high, wanted)


def _number(text: str, wanted: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{wanted}; {text!r} is not a number.") from None
