"""Panels about what became of versions: feedback on them, A/B tests of them, and releases that ended."""

from loomrl.cluster.monitoring.panel import Panel

BY_MODEL = "{{model_version}}"
VERSIONS = (
    Panel(
        title="Feedback by version",
        unit="percentunit",
        about="Mean value of the feedback on the latest 1000 judged trajectories: 1 is a thumb up, 0 one down.",
        queries=(("max by (model_version, source) (loomrl_model_feedback_mean)", BY_MODEL + " {{source}}"),),
    ),
    Panel(
        title="Number of these judgements",
        queries=(("max by (model_version, source) (loomrl_model_feedback)", BY_MODEL + " {{source}}"),),
    ),
    Panel(
        title="A/B tests: mean by arm",
        about="Of running tests. `loomrl ab show TEST` says what is proved.",
        queries=(
            (
                'max by (endpoint, test, arm, metric) (loomrl_ab_mean{endpoint=~"$endpoint"})',
                "{{test}} {{arm}} {{metric}}",
            ),
        ),
    ),
    Panel(
        title="A/B tests: difference from the first arm",
        about="Estimate, and bounds that hold at every look. Both bounds on one side of 0: a difference is proved.",
        queries=(
            (
                'max by (endpoint, test, arm, metric, bound) (loomrl_ab_difference{endpoint=~"$endpoint"})',
                "{{test}} {{arm}} {{metric}} {{bound}}",
            ),
        ),
    ),
    Panel(
        title="A/B tests: units",
        queries=(
            (
                'max by (endpoint, test, arm) (loomrl_ab_units{endpoint=~"$endpoint"})',
                "{{test}} {{arm}}",
            ),
        ),
    ),
)
RELEASES = (
    Panel(
        title="History of releases",
        kind="table",
        unit="dateTimeAsIso",
        about="The latest 50 that have ended: when, which version, and whether they were rolled back.",
        queries=(
            (
                "max by (release, endpoint, model_version, status) "
                '(loomrl_release_ended_timestamp_seconds{endpoint=~"$endpoint"}) * 1000',
                "{{release}} {{status}}",
            ),
        ),
    ),
    Panel(
        title="Rollbacks",
        kind="bargauge",
        about="Of the latest 50 releases.",
        queries=(
            (
                "count by (endpoint, model_version) (max by (release, endpoint, model_version) "
                '(loomrl_release_ended_timestamp_seconds{status="rolled_back",endpoint=~"$endpoint"}))',
                "{{endpoint}} " + BY_MODEL,
            ),
        ),
    ),
)
