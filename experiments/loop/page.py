"""The telling as one HTML file: satisfaction over time with versions marked, and what became of each version."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from loomrl.console.chart import line_chart
from loomrl.console.saved import Section, save_document
from loomrl.evaluation.report import Score
from loomrl.experiments.loop.crowd import Answered
from loomrl.experiments.loop.story import Demonstration, Proposal
from loomrl.files import write_whole
from loomrl.telemetry.number import percent

WINDOW = 150
"""Answers in a running mean."""
POINTS = 400
OUTCOMES = {"done": "released", "refused": "refused", "back": "taken back"}
WORDS = {
    "done": "released: it became the version in production",
    "refused": "refused by the gate: it was never served",
    "back": "taken back by the canary",
}


def write(file: Path, told: Demonstration, *, title: str) -> None:
    """Write the page."""
    before, after = told.satisfied
    intro = (
        f"People asked {len(told.answered):,} times, and said something of {told.said:,} answers. On the same held-out "
        f"tasks, by the checkers, the version in production at the beginning satisfies {percent(before)}, the one at "
        f"the end {percent(after)}."
    )
    sections = (
        Section(
            title="Satisfaction over time",
            chart=_curves(told),
            note=f"Share of right answers by the checker, running mean of {WINDOW} answers. People judge as the "
            "checker does but for one time in ten; in the shaded time they say the opposite.",
        ),
        Section(
            title="Versions",
            columns=("", "version", "from feedback", "what became of it", "most traffic"),
            rows=[_proposal(number, proposal) for number, proposal in enumerate(told.proposals, 1)],
        ),
        Section(title="Held-out tasks", columns=("policy", *sorted(told.families), "all"), rows=_scores(told)),
        *_forgotten(told),
        *_verified(told),
        Section(
            title="Kept out",
            note=f"{told.secrets} people pasted a secret; files of the production with one of them: {len(told.found)}. "
            f"Sessions on record of people who opted out: {told.outsiders}. Calls and judgements that failed: "
            f"{len(told.failed)}.",
        ),
    )
    write_whole(file, save_document(title, intro, sections).encode())


def _forgotten(told: Demonstration) -> list[Section]:
    """The person who left, and what became of the versions that learnt from them."""
    if told.departure is None:
        return []
    gone = told.departure
    certificate = gone.certificate
    made = {old: new for each in certificate["made_again"] for old, new in each["versions"].items()}
    rows = [
        ((old, ""), ("retired, its weights deleted", ""), (made.get(old, "–"), "")) for old in certificate["retired"]
    ]
    said = "".join(f" ({reason})" for reasons in certificate["verdicts"].values() for reason in reasons)
    checks = certificate["checks"]
    return [
        Section(
            title="A person who asked to be forgotten",
            columns=("version that learnt from them", "now", "made again without them"),
            rows=rows,
            note=f"{gone.person} asked to be forgotten: {gone.sessions} sessions. After {gone.seconds:.0f} s "
            f"{gone.stable} is in production{said}. The certificate {certificate['id'][:8]} is signed; "
            f"{sum(checks.values())} of its {len(checks)} checks hold.",
        )
    ]


def _verified(told: Demonstration) -> list[Section]:
    """The report of the second process, link by link."""
    found = told.verification
    if not found:
        return []
    rows = []
    for link in found["links"]:
        of = f" of {link['of']:,}" * bool(link["of"])
        derived = f"{link['checked']:,}{of} {link['unit']}"
        rows.append([(text, "") for text in (link["run"], link["link"], derived, link["how"], link["unchecked"])])
    return [
        Section(
            title="Verified by a second process",
            columns=("run", "link", "derived again", "how", "not checked, because"),
            rows=rows,
            note=f"{found['version']} holds: {percent(found['share'])} of "
            f"each link, drawn with seed {found['seed']}, in {found['seconds']:.0f} s. The bundle's SHA-256 is "
            f"{found['root']}.",
        )
    ]


def _scores(told: Demonstration) -> list[Sequence[tuple[str, str]]]:
    return [
        [(report.policy, ""), *(_score(report.by_family[family]) for family in sorted(told.families)),
         _score(report.overall)]
        for report in told.reports
    ]  # fmt: skip


def _score(score: Score) -> tuple[str, str]:
    found = score.success
    return "–" if found.mean is None else percent(found.mean), f"{percent(found.low)} to {percent(found.high)}"


def _proposal(number: int, proposal: Proposal) -> Sequence[tuple[str, str]]:
    return (
        (f"{number}.", ""),
        (proposal.policy, ""),
        (proposal.honesty, ""),
        (WORDS.get(proposal.phase, proposal.phase), proposal.reason),
        (percent(proposal.most_share), ""),
    )


def _curves(told: Demonstration) -> Markup:
    """Running means of all answers and of two families, with versions marked."""
    since = told.answered[0].at
    lines: list[tuple[str, Sequence[Answered]]] = [("all", told.answered)]
    lines += [(name, [one for one in told.answered if one.family == name]) for name in sorted(told.families)]
    means = {name.rpartition("/")[2]: dict(_means(answers)) for name, answers in lines[:3]}
    times = sorted({at for points in means.values() for at in points})
    marks = [
        {"at": proposal.over_at - since, "label": f"{number}. {OUTCOMES.get(proposal.phase, proposal.phase)}"}
        for number, proposal in enumerate(told.proposals, 1)
    ]
    return line_chart(
        "Satisfaction",
        [at - since for at in times],
        {name: [points.get(at) for at in times] for name, points in means.items()},
        form="percent",
        x_form="passed",
        marks=marks,
        shades=_dishonest(told, since),
        span=[0, 1],
    )


def _dishonest(told: Demonstration, since: float) -> list[dict[str, float | str]]:
    """The times in which people said something else than they thought; the first of each kind has a label."""
    begins = [since, *(proposal.over_at for proposal in told.proposals)]
    first = {proposal.honesty: proposal for proposal in reversed(told.proposals)}
    return [
        {
            "from": begin - since,
            "to": proposal.over_at - since,
            "label": f"feedback is {proposal.honesty}" if proposal is first[proposal.honesty] else "",
        }
        for begin, proposal in zip(begins, told.proposals, strict=False)
        if proposal.honesty != "honest"
    ]


def _means(answers: Sequence[Answered]) -> list[tuple[float, float]]:
    found = []
    right = 0
    every = max(1, len(answers) // POINTS)
    for number, one in enumerate(answers):
        right += one.is_right - (answers[number - WINDOW].is_right if number >= WINDOW else 0)
        if number >= WINDOW // 3 and number % every == 0:
            found.append((one.at, right / min(number + 1, WINDOW)))
    return found or [(answers[0].at, 0.0)]
