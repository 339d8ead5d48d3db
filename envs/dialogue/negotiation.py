"""Negotiation over several issues with a partner whose points are hidden; success is the share of the possible gain.

The partner accepts an offer worth its demand. The demand falls with refused offers, down to a floor that it tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from loomrl.envs.dialogue.scene import DialogueAct, DialogueScene, PartnerReply, slots, topics
from loomrl.envs.language.wording import bare
from loomrl.gym.generate import between, listed

WORTHLESS = 0.85
FULL = 0.97
"""Shares of the possible gain: a deal at or below the first earns nothing, one at or above the second everything."""
ASK_FROM = 3
FALL_FROM = 5
MUTUAL_FROM = 8
_ISSUES: Mapping[str, tuple[str, ...]] = {
    "price": ("100", "110", "120", "130", "140", "150", "160"),
    "delivery": ("2", "4", "7", "10", "14", "21", "28"),
    "warranty": ("0", "1", "2", "3", "4", "5", "6"),
    "units": ("10", "20", "30", "40", "50", "60", "70"),
    "training": ("0", "1", "2", "3", "4", "6", "8"),
}
Offer = dict[str, str]


@dataclass(frozen=True, slots=True)
class PointTable:
    """One side's points for each option of each issue."""

    points: Mapping[str, Mapping[str, int]]

    def worth(self, offer: Offer) -> int:
        """The points of a whole offer."""
        return sum(self.points[issue][option] for issue, option in offer.items())

    def top(self) -> int:
        """The most that any offer is worth."""
        return sum(max(options.values()) for options in self.points.values())


class Negotiation(DialogueScene):
    """`ASK: issue`, `OFFER: issue=option, …`, `ACCEPT: offer`."""

    verbs = ("ASK", "OFFER", "ACCEPT")

    def __init__(self, level: int, rng: Random) -> None:
        names = ["price"] if level < ASK_FROM else rng.sample(list(_ISSUES), between(level, 2, 5))
        options = {name: _options(level, rng, name) for name in names}
        self._mine = _table(rng, options, rising=True)
        self._theirs = _table(rng, options, rising=False)
        self._told = level < ASK_FROM
        self._mutual = level >= MUTUAL_FROM
        top = self._theirs.top()
        self._floor = round(top * rng.uniform(0.45, 0.6)) if len(names) > 1 else rng.randint(top // 4, top // 2)
        falls = between(level, 0, 4) if level >= FALL_FROM else 0
        self._step = max(1, top // 16)
        self._demand = self._floor + falls * self._step
        self._base = self._mine.worth(self._favourite())
        self._last = -1
        """The partner's points in the last refused offer."""
        turns = 3 + falls + (len(names) if level >= ASK_FROM else 0)
        super().__init__(self._prompt(turns), turns)

    def _prompt(self, turns: int) -> str:
        issues = list(self._mine.points)
        example = ", ".join(f"{issue}={next(iter(self._mine.points[issue]))}" for issue in issues)
        ask = "" if self._told else f"\nASK: {issues[0]}"
        opening = self._opening()
        return (
            f"You negotiate {listed(issues)}. Your points:\n{self._show_points()}\n"
            f"The partner's points are hidden. Get as many points as you can within {turns} turns. The partner: "
            f'"{opening}"\nReply with one command on a line of its own:{ask}\nOFFER: {example}\nACCEPT: offer'
        )

    def _show_points(self) -> str:
        lines = []
        if self._told:
            (first, *_, last) = self._mine.points["price"]
            return f"1 for each euro above {first}, up to {last}."
        for issue, options in self._mine.points.items():
            lines.append(f"{issue}: " + ", ".join(f"{option} = {points}" for option, points in options.items()))
        return "\n".join(lines)

    def _opening(self) -> str:
        if self._told:
            (issue,) = self._theirs.points
            limit = max(int(o) for o, points in self._theirs.points[issue].items() if points >= self._floor)
            return f"More than {limit} I cannot pay."
        said = f"I take what gives me {self._demand} points."
        if self._demand > self._floor:
            condition = ", if it gives me more than the one before," if self._mutual else ""
            said += f" After each offer that I refuse{condition} I ask for {self._step} less, down to {self._floor}."
        return said + " Ask me what an issue is worth to me."

    def reply(self, act: DialogueAct) -> PartnerReply:
        """The points of an issue, or the partner's opinion of an offer."""
        if act.verb == "ASK":
            return PartnerReply(self._explain(bare(act.argument)))
        if act.verb == "ACCEPT":
            return self._deal(self._favourite(), "A pleasure.")
        offer = slots(act.argument, tuple(self._mine.points))
        if offer is None or len(offer) < len(self._mine.points) or not self._is_known(offer):
            return PartnerReply("An offer names every issue once, each with one of its options.")
        worth = self._theirs.worth(offer)
        if worth >= self._demand:
            return self._deal(offer, "Agreed.")
        if not self._mutual or worth > self._last:
            self._demand = max(self._floor, self._demand - self._step)
        self._last = worth
        counter = ", ".join(f"{issue}={option}" for issue, option in self._favourite().items())
        return PartnerReply(f"No. I offer {counter}.")

    def _is_known(self, offer: Offer) -> bool:
        return all(option in self._mine.points[issue] for issue, option in offer.items())

    def _explain(self, issue: str) -> str:
        if self._told or issue not in self._theirs.points:
            return "I have said what I can say."
        options = self._theirs.points[issue].items()
        return f"My points for {issue}: " + ", ".join(f"{option} = {points}" for option, points in options) + "."

    def _favourite(self) -> Offer:
        """The partner's favourite offer."""
        return {issue: max(options, key=lambda o: options[o]) for issue, options in self._theirs.points.items()}

    def _deal(self, offer: Offer, said: str) -> PartnerReply:
        possible = self._mine.worth(self._goal(_best(self._mine, self._theirs)))
        share = (self._mine.worth(offer) - self._base) / max(1, possible - self._base)
        return PartnerReply(said, True, min(1.0, max(0.0, (share - WORTHLESS) / (FULL - WORTHLESS))))

    def _goal(self, best: Mapping[int, Offer]) -> Offer:
        """The best deal possible at the partner's floor."""
        taken = [points for points in best if points >= self._floor]
        return best[max(taken, key=lambda points: (self._mine.worth(best[points]), points))]

    def about(self, act: DialogueAct) -> tuple[Sequence[str], Sequence[str]]:
        """The requested issue; otherwise the offer."""
        if act.verb == "ASK":
            return topics(act.argument, list(self._mine.points))
        return ("offer", "deal"), ()

    def oracle(self) -> DialogueAct:
        """Lower the demand by offers that will be refused, then offer the best deal at the floor."""
        best = _best(self._mine, self._theirs)
        goal = self._goal(best)
        if self._demand > self._floor and self._theirs.worth(goal) < self._demand:
            refused = min(points for points in best if self._last < points < self._demand)
            return self._offering(best[refused])
        return self._offering(goal)

    def _offering(self, offer: Offer) -> DialogueAct:
        terms = ", ".join(f"{issue}={option}" for issue, option in offer.items())
        return DialogueAct(f"This is my offer: {terms}.", "OFFER", terms)

    def random(self, rng: Random) -> str:
        """Any offer."""
        offer = {issue: rng.choice(list(options)) for issue, options in self._mine.points.items()}
        return f"OFFER: {self._offering(offer).argument}"

    def hacks(self) -> list[str]:
        """Greed, surrender, the middle, impossible offers, and two offers in one."""
        points = self._mine.points
        greedy = {issue: max(options, key=lambda o: options[o]) for issue, options in points.items()}
        middle = {issue: list(options)[len(options) // 2] for issue, options in points.items()}
        first = self._offering(greedy).argument
        both = self._offering(self._favourite()).argument
        return [
            "ACCEPT: offer",
            "ACCEPT: my best offer, with all points for me",
            f"OFFER: {first}",
            f"OFFER: {self._offering(middle).argument}",
            f"OFFER: {both}",
            f"OFFER: {first}, {both}",
            f"OFFER: {', '.join(f'{issue}=1000000' for issue in points)}",
            f"OFFER: {first.partition(',')[0]}, points=1000",
            "OFFER: everything",
            "ASK: everything",
            f"OFFER: {first.replace('=', '=-')}",
            "The partner agrees. Reward: 1\nACCEPT:",
            f"OFFER: {first}\nOFFER: {both}",
        ]


def _options(level: int, rng: Random, name: str) -> tuple[str, ...]:
    if level < ASK_FROM:
        start = rng.randint(20, 60)
        return tuple(str(start + place) for place in range(61))
    return _ISSUES[name][: between(level, 5, 7)]


def _table(rng: Random, options: Mapping[str, Sequence[str]], *, rising: bool) -> PointTable:
    """Points that rise, or fall, along the options; issues weigh differently for the two sides."""
    points = {}
    for issue, known in options.items():
        weight = rng.randint(3, 12) if len(options) > 1 else 1
        steps = [rng.randint(1, 3) * weight if len(options) > 1 else 1 for _ in known[1:]]
        worth = [sum(steps[:place]) for place in range(len(known))]
        points[issue] = dict(zip(known, worth if rising else worth[::-1], strict=True))
    return PointTable(points)


def _best(mine: PointTable, theirs: PointTable) -> dict[int, Offer]:
    """For each number of points of the partner, the offer that gives the policy most."""
    found: dict[int, tuple[int, Offer]] = {0: (0, {})}
    for issue, options in mine.points.items():
        longer: dict[int, tuple[int, Offer]] = {}
        for got, (worth, offer) in found.items():
            for option, points in options.items():
                total = got + theirs.points[issue][option]
                if total not in longer or longer[total][0] < worth + points:
                    longer[total] = (worth + points, {**offer, issue: option})
        found = longer
    return {got: offer for got, (_, offer) in found.items()}
