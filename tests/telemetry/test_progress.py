import io

from loomrl.telemetry.progress import progress, span


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_rarely_and_end_with_the_last_state() -> None:
    stream, times = io.StringIO(), iter([0.0, 1.0, 2.0, 6.0, 7.0])
    with progress("work", 10, stream=stream, clock=lambda: next(times)) as report:
        for done in (1, 2, 3, 4):
            report(done, f"note {done}")
    assert stream.getvalue().splitlines() == [
        "work: 3/10 after 6 s, about 14 s left  note 3",
        "work: 4/10 after 7 s, about 10 s left  note 4",
    ]


def test_of_what_may_be_long_nothing_is_said_before_it_is_and_a_terminal_gets_lines_too() -> None:
    stream, times = Terminal(), iter([0.0, 1.0, 4.9, 6.0])
    with progress("work", 3, only_if_long=True, stream=stream, clock=lambda: next(times)) as report:
        for done in (1, 2, 3):
            report(done)
    assert stream.getvalue().splitlines() == ["work: 3/3 after 6 s"]
    quick = io.StringIO()
    with progress("work", 1, only_if_long=True, stream=quick, clock=lambda: 0.0) as report:
        report(1)
    assert quick.getvalue() == ""


def test_work_that_goes_on_is_timed_from_where_it_began() -> None:
    stream, times = io.StringIO(), iter([0.0, 100.0])
    with progress("work", 150, begun=100, stream=stream, clock=lambda: next(times)) as report:
        report(110)
    assert stream.getvalue() == "work: 110/150 after 1 min 40 s, about 6 min 40 s left\n"


def test_times_are_said_in_two_units_at_most() -> None:
    assert [span(seconds) for seconds in (0.4, 59.6, 61, 3600, 90061)] == [
        "0 s",
        "1 min 0 s",
        "1 min 1 s",
        "1 h 0 min",
        "25 h 1 min",
    ]


def test_finished_work_is_said_once() -> None:
    stream = io.StringIO()
    with progress("work", 2, stream=stream, clock=lambda: 0.0) as report:
        report(1)
        report(2)
    assert stream.getvalue().splitlines() == ["work: 2/2 after 0 s"]


def test_terminal_gets_a_bar() -> None:
    stream = Terminal()
    with progress("work", 2, stream=stream) as report:
        report(2, "all well")
    assert "work" in stream.getvalue()
    assert "2/2" in stream.getvalue()
    assert "all well" in stream.getvalue()
