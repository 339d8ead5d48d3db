"""A front in the terminal: the result of every preference."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import Console

from loomrl.evaluation.front import FrontReport, PreferenceReturns
from loomrl.evaluation.statistics import Interval
from loomrl.experiments.commands.output import table


def render_front(report: FrontReport, console: Console) -> None:
    """The result of each preference, and the quality of the front."""
    columns = ("preference", "", *(f"{objective}>" for objective in report.objectives), "on the front")
    console.print(table(f"Front of {report.policy}", columns, _rows(report)))
    said = [f"{len(report.front)} points", f"expected utility {report.expected_utility:.4g}"]
    said.append(f"sparsity {report.sparsity:.4g}")
    if report.hypervolume is not None and report.reference is not None:
        said.insert(1, f"hypervolume {report.hypervolume:.6g} from {list(report.reference)}")
    console.print(", ".join(said), highlight=False)


def _rows(report: FrontReport) -> Iterator[tuple[str, ...]]:
    """A row per preference; neighbours with equal results share one row."""
    for returns, run in groupby(report.by_preference, key=lambda steered: steered.returns):
        first, *rest = run
        last = f"to {_weights(rest[-1])}, {1 + len(rest)} of them" if rest else ""
        mark = "yes" if first.is_on_front else "no"
        yield _weights(first), last, *(_cell(interval) for interval in returns), mark


def _weights(steered: PreferenceReturns) -> str:
    return " ".join(f"{weight:.2f}" for weight in steered.preference)


def _cell(interval: Interval) -> str:
    mean = f"{interval.mean:.4g}"
    return mean if interval.count < 2 else f"{mean}  [{interval.low:.4g}, {interval.high:.4g}]"
