"""The telling as one HTML file: satisfaction over time with versions marked, and what became of each version."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import starmap
from pathlib import Path

from loomrl.evaluation.report import Score
from loomrl.experiments.loop.crowd import Answered
from loomrl.experiments.loop.story import Demonstration, Proposal
from loomrl.files import write_whole
from loomrl.telemetry.number import percent

WINDOW = 150
"""Answers in a running mean."""
WIDE = 920.0
HIGH = 360.0
LEFT = 48.0
TOP = 56.0
RIGHT = 16.0
BOTTOM = 46.0
POINTS = 400
Place = Callable[[float], float]
WORDS = {
    "done": "released: it is the version in production",
    "refused": "refused by the gate: nobody met it",
    "back": "taken back by the canary",
}
STYLE = """
:root{color-scheme:light dark;--page:#f7f7f5;--card:#fff;--ink:#14140f;--soft:#55544f;--faint:#6f6d66;--line:#e6e5de;
--good:#00703c;--bad:#b3261e;--c1:#2a78d6;--c2:#eb6834;--c3:#128a5f;--band:#f3f3f0}
@media(prefers-color-scheme:dark){:root{--page:#0f0f0e;--card:#1a1a19;--ink:#f4f4ef;--soft:#c3c2b7;--faint:#9a988e;
--line:#2c2c2a;--good:#5fd39b;--bad:#ff8d84;--c1:#5a9ff0;--c2:#e8733f;--c3:#2fbf8c;--band:#222220}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1000px;padding:40px 20px 64px;background:var(--page);
color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
h1{font-size:28px;line-height:1.2;letter-spacing:-.02em;margin:0 0 8px}h2{font-size:19px;margin:40px 0 12px}
p{margin:0 0 12px;color:var(--soft);max-width:75ch}.card{background:var(--card);border:1px solid var(--line);
border-radius:12px;padding:16px 18px;overflow-x:auto}svg{display:block;width:100%;min-width:640px;height:auto}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--soft)}
.grid{stroke:var(--line)}.band{fill:var(--band)}.mark{stroke:var(--ink);stroke-dasharray:3 3}
svg .strong{fill:var(--ink);font-weight:600}.line{fill:none;stroke-width:2}.l0{stroke:var(--c1)}
.l1{stroke:var(--c2)}.l2{stroke:var(--c3)}.k0{fill:var(--c1)}.k1{fill:var(--c2)}.k2{fill:var(--c3)}
svg .k0,svg .k1,svg .k2{font-weight:600}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:7px 14px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--faint);font-size:13px}.number{text-align:right;white-space:nowrap}
.good{color:var(--good)}.bad{color:var(--bad)}.note{font-size:13px;color:var(--faint)}
"""


def write(file: Path, told: Demonstration, *, title: str) -> None:
    """Write the page."""
    before, after = told.satisfied
    head = (
        f"People asked {len(told.answered):,} times, and said something of {told.said:,} answers. On the same held-out "
        f"tasks, by the checkers, the version in production at the beginning satisfies {percent(before)}, the one at "
        f"the end {percent(after)}."
    )
    body = "".join(
        (
            f"<h1>{escape(title)}</h1><p>{head}</p>",
            '<h2>Satisfaction over time</h2><figure class="card" style="margin:0">',
            _curves(told),
            f'</figure><p class="note">Share of right answers by the checker, running mean of {WINDOW} answers. People '
            "judge as the checker does but for one time in ten; in the shaded time they say the opposite.</p>",
            "<h2>Versions</h2>",
            _table(
                ("", "version", "from feedback", "what became of it", "most traffic"),
                starmap(_proposal, enumerate(told.proposals, 1)),
            ),
            "<h2>Held-out tasks</h2>",
            _table(("policy", *_families(told), "all"), _scores(told)),
            "<h2>Kept out</h2>",
            f"<p>{told.secrets} people pasted a secret; files of the production with one of them: {len(told.found)}. "
            f"Sessions on record of people who opted out: {told.outsiders}. Calls and judgements that failed: "
            f"{len(told.failed)}.</p>",
        )
    )
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )
    write_whole(file, page.encode())


def _families(told: Demonstration) -> list[str]:
    return sorted(told.families)


def _scores(told: Demonstration) -> Iterator[tuple[str, ...]]:
    for report in told.reports:
        cells = [_score(report.by_family[family]) for family in _families(told)]
        yield (escape(report.policy), *cells, _score(report.overall))


def _score(score: Score) -> str:
    found = score.success
    mean = "–" if found.mean is None else percent(found.mean)
    return f"{mean} <span class='note'>{percent(found.low)} to {percent(found.high)}</span>"


def _proposal(number: int, proposal: Proposal) -> tuple[str, ...]:
    kind = "good" if proposal.phase == "done" else "bad"
    said = WORDS.get(proposal.phase, proposal.phase)
    return (
        f"{number}.",
        escape(proposal.policy),
        proposal.honesty,
        f'<span class="{kind}">{said}</span><br><span class="note">{escape(proposal.reason)}</span>',
        percent(proposal.most_share),
    )


def _table(columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _curves(told: Demonstration) -> str:
    since = told.answered[0].at
    until = max(told.answered[-1].at, told.answered[0].at + 1)

    def x(at: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * (min(max(at, since), until) - since) / (until - since)

    def y(share: float) -> float:
        return HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * share

    parts = [*_dishonest(told, x, y)]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDE - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{percent(tick)}</text>')
    minutes = (until - since) / 60
    step = max(1, round(minutes / 8))
    for minute in range(0, int(minutes) + 1, step):
        at = x(since + 60 * minute)
        anchor = "end" if at > WIDE - 40 else "middle"
        parts.append(f'<text x="{at:.1f}" y="{HIGH - BOTTOM + 20}" text-anchor="{anchor}">{minute} min</text>')
    lines: list[tuple[str, Sequence[Answered]]] = [("all", told.answered)]
    lines += [(name, [one for one in told.answered if one.family == name]) for name in _families(told)]
    for number, (name, answers) in enumerate(lines[:3]):
        path = "L".join(f"{x(at):.1f} {y(share):.1f}" for at, share in _means(answers))
        parts.append(f'<path class="line l{number}" d="M{path}"/>')
        left = LEFT + 170 * number
        parts.append(f'<rect class="k{number}" x="{left}" y="10" width="14" height="4" rx="2"/>')
        parts.append(f'<text class="k{number}" x="{left + 20}" y="16">{escape(name.rpartition("/")[2])}</text>')
    for number, proposal in enumerate(told.proposals, 1):
        at = x(proposal.over_at)
        word = {"done": "released", "refused": "refused", "back": "taken back"}.get(proposal.phase, proposal.phase)
        side, anchor = (-6, "end") if at > WIDE - 120 else (6, "start")
        parts.append(f'<path class="mark" d="M{at:.1f} {TOP - 8}V{y(0):.1f}"/>')
        parts.append(
            f'<text class="strong" x="{at + side:.1f}" y="{TOP - 12}" text-anchor="{anchor}">{number}. {word}</text>'
        )
    shape = f'viewBox="0 0 {WIDE:g} {HIGH:g}"'
    return f'<svg {shape} role="img" aria-label="Satisfaction over time, with versions marked">{"".join(parts)}</svg>'


def _dishonest(told: Demonstration, x: Place, y: Place) -> Iterator[str]:
    """The times in which people said something else than they thought."""
    first = {proposal.honesty: proposal for proposal in reversed(told.proposals)}
    ends = [told.answered[0].at, *(proposal.over_at for proposal in told.proposals)]
    for number, proposal in enumerate(told.proposals):
        if proposal.honesty != "honest":
            begin = ends[number]
            wide = x(proposal.over_at) - x(begin)
            yield f'<rect class="band" x="{x(begin):.1f}" y="{TOP}" width="{wide:.1f}" height="{y(0) - TOP:.1f}"/>'
            if proposal is first[proposal.honesty]:
                yield f'<text x="{x(begin) + 8:.1f}" y="{y(0) - 8:.1f}">feedback is {proposal.honesty}</text>'


def _means(answers: Sequence[Answered]) -> list[tuple[float, float]]:
    found = []
    right = 0
    every = max(1, len(answers) // POINTS)
    for number, one in enumerate(answers):
        right += one.is_right - (answers[number - WINDOW].is_right if number >= WINDOW else 0)
        if number >= WINDOW // 3 and number % every == 0:
            found.append((one.at, right / min(number + 1, WINDOW)))
    return found or [(answers[0].at, 0.0)]
