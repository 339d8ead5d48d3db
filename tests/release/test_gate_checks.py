"""What a check of the gate says of attempts that failed."""

from loomrl.release.gate.benchmark import too_many_failed


def test_failures_that_differ_in_numbers_alone_are_told_once_the_most_frequent_first() -> None:
    failures = {f"policy: PolicyError: the conversation has {n} tokens": 2 for n in range(20)} | {"scorer: hung": 5}
    assert too_many_failed(45, 60, 0.02, failures) == (
        "45 of 60 attempts failed (may_fail=0.02): 40 × policy: PolicyError: the conversation has 0 tokens; "
        "5 × scorer: hung"
    )
    assert too_many_failed(1, 60, 0.02, {"scorer: hung": 1}) is None
