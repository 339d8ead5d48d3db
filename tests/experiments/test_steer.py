"""A policy of several objectives is judged preference by preference."""

from pathlib import Path

from rich.console import Console

from loomrl.experiments.evaluate import as_result, evaluate_policies, render
from loomrl.experiments.shipped import resolve


def test_the_front_of_an_evaluation_is_told(tmp_path: Path) -> None:
    words = ["evaluation.episodes=4", "evaluation.preferences=3", f"store_url=sqlite:///{tmp_path}/loom.db"]
    result = evaluate_policies(resolve(["language/steer_tiny", *words]))
    (report,) = result.reports
    assert [steered.preference for steered in report.front.by_preference] == [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]
    assert report.overall.success.count == 12
    shares = [[interval.mean for interval in steered.returns] for steered in report.front.by_preference]
    assert all(right == 1.0 and 0 < short < 1 for right, short in shares)
    assert as_result(result)["policies"]["oracle"]["front"]["hypervolume"] == report.front.hypervolume
    console = Console(record=True, width=120)
    render(result, console)
    assert "Front of oracle" in console.export_text()
