"""The end of a run: which tests took more than a quick test may, and which were skipped for want of what."""

import os
import time
from collections import Counter
from collections.abc import Generator

import psutil
import pytest

BUDGET_S = 10.0
"""CPU seconds of a test that is not marked `slow`, its processes included. A busy machine does not change them much."""
MOST_S = 20 * BUDGET_S
"""No machine is so slow: here a test fails."""
LONG_S = 2.0
"""Seconds on the clock below which nobody looks at the processes that a test left alive."""

Phase = Generator[None, object, object]
_seen: dict[int, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Phase:
    """Look at what a fixture started, so that no test is charged for it."""
    began = time.monotonic()
    result = yield
    if time.monotonic() - began > LONG_S:
        _spent_by_living()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Phase:
    """Note what a test spent where that is more than its budget."""
    began, before = time.monotonic(), sum(os.times()[:4])
    result = yield
    spent = sum(os.times()[:4]) - before + (_spent_by_living() if time.monotonic() - began > LONG_S else 0.0)
    if spent > BUDGET_S and item.get_closest_marker("slow") is None:
        item.user_properties.append(("cpu_s", spent))
        if spent > MOST_S:
            pytest.fail(f"{spent:.0f} CPU seconds, of {BUDGET_S:g}: mark it slow, with a quick sibling")
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Both lists; nothing where they are empty."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.stats.get(name, [])]
    over = [(dict(report.user_properties).get("cpu_s"), report.nodeid) for report in reports if report.when == "call"]
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if any(spent for spent, _ in over):
        terminalreporter.section(f"over the budget of {BUDGET_S:g} CPU seconds (tests/README.md)")
        for spent, name in sorted(((spent, name) for spent, name in over if spent), reverse=True):
            terminalreporter.line(f"{spent:6.1f} s  {name}")
    if reasons:
        terminalreporter.section("skipped, and what would run it")
        for why, count in reasons.most_common():
            terminalreporter.line(f"{count:6}  {why}")


def _spent_by_living() -> float:
    """CPU seconds of all living descendants since they were last looked at."""
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            now = sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
        spent += now - _seen.get(process.pid, 0.0)
        _seen[process.pid] = now
    return spent
