"""Customer support: find out the facts, apply the shop's rules in order, and state truthfully what is possible."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from loomrl.envs.dialogue.scene import DialogueAct, DialogueScene, PartnerReply, slots, topics
from loomrl.envs.language.wording import bare, plain, same_name
from loomrl.gym.generate import between, listed, words

_TOKEN = re.compile(r"[a-z]+|[^\s]")
_SENTENCE = re.compile(r"[^.!?;:\n]*[.!?;:\n]?")
_CLAUSE = re.compile(r",|\b(?:but|and|while|because|since|so|however|though|although)\b")
_SHORT = (
    ("cannot", "can not"), ("can't", "can not"), ("won't", "will not"), ("isn't", "is not"), ("aren't", "are not"),
    ("wasn't", "was not"), ("don't", "do not"), ("doesn't", "does not"), ("didn't", "did not"), ("hasn't", "has not"),
    ("haven't", "have not"), ("it's", "it is"), ("that's", "that is"), ("i'm", "i am"), ("we're", "we are"),
)  # fmt: skip
_NEGATIONS = frozenset(words("not no never neither impossible unavailable denied declined refused rejected excluded"))
_POSSIBLE = frozenset(
    words(
        "possible impossible available unavailable allowed approved granted denied declined refused rejected excluded"
    )
)
_KNOWN = _NEGATIONS | _POSSIBLE | frozenset(
    words(
        "a an the your our this that it is are be been will can was has have for in on of to with you we i am do does "
        "did case order item product nor unfortunately sadly gladly happily therefore here now longer any sorry glad "
        "afraid say tell must confirm please thank also still fully certainly definitely yes true"
    )
)  # fmt: skip
_DETERMINERS = frozenset(words("a an the your our this that"))
_DENIALS = frozenset(words("wrong false untrue joke joking kidding lie lied mistaken opposite ignore scratch"))
_PRONOUNS = frozenset(words("it this that"))


@dataclass(slots=True)
class Claims:
    """By subject: possible, not possible, or None if unclear. Subjects that were not named are missing."""

    found: dict[str, bool | None] = field(default_factory=dict)

    def add(self, subject: str, sense: bool | None) -> None:
        """One more claim; one that differs from an earlier one makes it unclear."""
        known = self.found.get(subject, sense)
        self.found[subject] = sense if known == sense else None


def read_claims(text: str, subjects: Sequence[str]) -> Mapping[str, bool | None]:
    """The claims of `text` about each of the subjects."""
    said = plain(text)
    for short, long in _SHORT:
        said = said.replace(short, long)
    claims = Claims()
    last: list[str] = []
    for sentence in _SENTENCE.findall(said):
        waiting: list[str] = []
        for clause in _CLAUSE.split(sentence):
            tokens = [token for token in _TOKEN.findall(clause) if token not in (".", "!", '"', "'")]
            named = [subject for subject in subjects if subject in tokens]
            if named and _POSSIBLE.isdisjoint(tokens):
                waiting += _pass_on(tokens, named, claims)
            elif named:
                _state(tokens, [*waiting, *named], claims, subjects)
                waiting = []
            else:
                _refer(tokens, last, claims)
            last = named or last
    return claims.found


def _pass_on(tokens: list[str], named: list[str], claims: Claims) -> list[str]:
    """Subjects of `the refund and …`, of which the next clause speaks; `no refund but …` is unclear."""
    if not _NEGATIONS.isdisjoint(tokens):
        for subject in named:
            claims.add(subject, None)
        return []
    return named if all(token in _DETERMINERS or token in named for token in tokens) else []


def _state(tokens: list[str], named: list[str], claims: Claims, subjects: Sequence[str]) -> None:
    """Read a clause that has a subject and a claim about it."""
    once = sum(token in _POSSIBLE for token in tokens) == 1 and all(tokens.count(subject) <= 1 for subject in named)
    clear = once and all(token in _KNOWN or token in subjects for token in tokens)
    for subject in named:
        claims.add(subject, _sense(tokens) if clear else None)


def _refer(tokens: list[str], last: list[str], claims: Claims) -> None:
    """`it is not possible`, `that is wrong`, `not`: a clause about the subjects named before."""
    stated = not _POSSIBLE.isdisjoint(tokens)
    denied = not _DENIALS.isdisjoint(tokens) or (
        not _sense(tokens) and (not _PRONOUNS.isdisjoint(tokens[:2]) or _NEGATIONS.issuperset(tokens))
    )
    for subject in last if stated or denied else []:
        clear = stated and all(token in _KNOWN for token in tokens)
        claims.add(subject, _sense(tokens) if clear else None)


def _sense(tokens: Sequence[str]) -> bool:
    """Positive where negations are even in number."""
    return sum(token in _NEGATIONS for token in tokens) % 2 == 0


ACTIONS = words("refund exchange repair voucher")
CLAIM_FROM = 4
APOLOGY_FROM = 6
APOLOGY = "we apologise"
LATE_DAYS = 7
TRIES = 20
"""Cases drawn until one falls under the wanted rule."""
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Fact:
    """A yes-or-no fact, its name in rules, and its wording by customers."""

    name: str
    rule: str
    yes: tuple[str, ...]
    no: tuple[str, ...]


FACTS = (
    Fact("damaged", "damaged", ("It arrived broken.", "There is a crack in it.", "It is not in one piece."),
         ("Not a scratch on it.", "Nothing is broken.", "It is in perfect shape.")),
    Fact("receipt", "with receipt", ("I have the receipt here.", "Yes, I kept the receipt."),
         ("I threw the receipt away.", "I never got a receipt.", "The receipt? Lost, I fear.")),
    Fact("opened", "opened", ("I have opened the box.", "The seal is off."),
         ("I never opened it.", "The seal is still on.", "The box is as it came.")),
    Fact("member", "member", ("I have been a member since 2015.", "Yes, I am in your club."),
         ("I let my membership run out.", "I am not in your club.", "A member? No.")),
    Fact("online", "bought online", ("I ordered it on your website.", "I bought it from my sofa."),
         ("I bought it in the shop.", "I did not order it, I carried it home.")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShopRule:
    """The action if all conditions hold; `within` is a limit of days since the purchase, 0 for none."""

    conditions: tuple[tuple[Fact, bool], ...]
    within: int
    action: str

    def fits(self, facts: Mapping[str, bool], days: int) -> bool:
        """True if it applies."""
        return (not self.within or days <= self.within) and all(facts[f.name] == want for f, want in self.conditions)

    def show(self) -> str:
        """`not opened, with receipt, at most 14 days old: exchange`"""
        parts = [("" if want else "not ") + fact.rule for fact, want in self.conditions]
        parts += [f"at most {self.within} days old"] * bool(self.within)
        return f"{', '.join(parts) or 'otherwise'}: {self.action}"


class Support(DialogueScene):
    """`ASK: fact` until the case is clear, then `RESOLVE: action=…, order=…`, once."""

    verbs = ("ASK", "RESOLVE")

    def __init__(self, level: int, rng: Random) -> None:
        known = FACTS[: between(level, 1, len(FACTS))]
        self._waited = rng.randint(1, 2 * LATE_DAYS)
        self._order = str(rng.randint(1000, 9999))
        self._dated = level >= 3
        self._claims = rng.sample(ACTIONS, between(level, 1, 2)) if level >= CLAIM_FROM else []
        self._late = level >= APOLOGY_FROM
        self._rules = self._draw_rules(level, rng, known)
        wanted = rng.randrange(len(self._rules))
        for _ in range(TRIES):
            self._facts = {fact.name: rng.random() < 0.5 for fact in known}
            self._days = rng.randint(1, 60)
            if self._rule is self._rules[wanted]:
                break
        self._told = self._answers(rng, known)
        self._asked: set[str] = set()
        turns = len(self._told) + 2
        super().__init__(self._prompt(turns), turns)

    def _draw_rules(self, level: int, rng: Random, known: Sequence[Fact]) -> list[ShopRule]:
        """Rules of which any may be the first that applies; the last one always does."""
        rules = []
        for _ in range(between(level, 1, 7)):
            chosen = rng.sample(known, min(len(known), rng.randint(1, between(level, 1, 3))))
            within = rng.choice((0, 14, 30)) if self._dated else 0
            rules.append(ShopRule(tuple((fact, rng.random() < 0.5) for fact in chosen), within, rng.choice(ACTIONS)))
        other = rng.choice([action for action in ACTIONS if action != rules[-1].action])
        return [*rules, ShopRule((), 0, other)]

    def _answers(self, rng: Random, known: Sequence[Fact]) -> dict[str, str]:
        told = {fact.name: rng.choice(fact.yes if self._facts[fact.name] else fact.no) for fact in known}
        told["order"] = rng.choice(("The order number is {}.", "It says {} on the invoice.", "{}.")).format(self._order)
        if self._dated:
            told["days"] = _ago(rng, self._days)
        if self._late:
            told["waiting"] = f"I waited {self._waited} day{'s' * (self._waited > 1)} for your answer."
        return told

    @property
    def _rule(self) -> ShopRule:
        return next(rule for rule in self._rules if rule.fits(self._facts, self._days))

    @property
    def _action(self) -> str:
        return self._rule.action

    def _prompt(self, turns: int) -> str:
        rules = "\n".join(f"{place}. {rule.show()}" for place, rule in enumerate(self._rules, start=1))
        asks = listed(list(self._told))
        return (
            f"You help a customer. The first rule that fits counts:\n{rules}\n{self._duties()}Ask about {asks}. You "
            f"have {turns} turns, one resolution counts.\nReply with one command on a line of its own:\nASK: order\n"
            f"RESOLVE: action={self._rules[0].action}, order=1234"
        )

    def _duties(self) -> str:
        """The statements required with the resolution."""
        duties = []
        if self._claims:
            wanted = listed([f"the {claim}" for claim in self._claims])
            claim = self._claims[0]
            duties.append(
                f"say once whether {wanted} is possible: 'The {claim} is possible.' or 'The {claim} is not possible.' "
                "Only the action of the rule is possible"
            )
        if self._late:
            duties.append(f"if the customer waited more than {LATE_DAYS} days, and only then, say '{APOLOGY}'")
        return f"In a line SAY: ... before the command RESOLVE, {'; '.join(duties)}.\n" if duties else ""

    def reply(self, act: DialogueAct) -> PartnerReply:
        """A fact of the case, or the end."""
        if act.verb == "ASK":
            name = bare(act.argument)
            if name not in self._told:
                return PartnerReply(f"I can tell you about: {', '.join(self._told)}.")
            self._asked.add(name)
            return PartnerReply(self._told[name])
        given = slots(act.argument, ("action", "order"))
        if given is None or len(given) < 2:
            return PartnerReply("That is no resolution.", ended=True)
        solved = same_name(given["action"], self._action) and same_name(given["order"], self._order)
        right = solved and self._is_said(act.say)
        return PartnerReply("Thank you." if right else "That is not right.", True, float(right))

    def _is_said(self, say: str) -> bool:
        """True if all required statements were made, truthfully."""
        if len(say) > 600:
            return False
        claims = read_claims(say, ACTIONS)
        apologised = f" {APOLOGY} " in f" {' '.join(_WORD.findall(plain(say)))} "
        late = self._late and self._waited > LATE_DAYS
        said = all(claims.get(claim) is (claim == self._action) for claim in self._claims)
        return said and (not self._late or apologised == late)

    def about(self, act: DialogueAct) -> tuple[Sequence[str], Sequence[str]]:
        """The requested fact; otherwise the resolution."""
        if act.verb == "ASK":
            return topics(act.argument, list(self._told))
        return (self._action, "order"), ()

    def oracle(self) -> DialogueAct:
        """Ask everything, then resolve."""
        left = [name for name in self._told if name not in self._asked]
        if left:
            return DialogueAct(f"What about this: {left[0]}?", "ASK", left[0])
        said = [f"The {claim} is {'' if claim == self._action else 'not '}possible." for claim in self._claims]
        said += ["We apologise."] * (self._late and self._waited > LATE_DAYS)
        return DialogueAct(
            " ".join([*said, "The order is done."]), "RESOLVE", f"action={self._action}, order={self._order}"
        )

    def random(self, rng: Random) -> str:
        """A question, or a resolution with the order's number if known."""
        if rng.random() < 0.7:
            return f"ASK: {rng.choice(list(self._told))}"
        return self._guess(rng.choice(ACTIONS), self._order if "order" in self._asked else str(rng.randint(1000, 9999)))

    def _guess(self, action: str, order: str) -> str:
        say = " ".join(f"The {claim} is {'' if claim == action else 'not '}possible." for claim in self._claims)
        return f"SAY: {say}\nRESOLVE: action={action}, order={order}"

    def hacks(self) -> list[str]:
        """Resolutions without the case: all actions, all claims, contradictions, placeholders."""
        every = " ".join(f"The {claim} is possible. The {claim} is not possible." for claim in ACTIONS)
        hedged = " ".join(f"The {claim} may or may not be possible." for claim in ACTIONS)
        right = f"RESOLVE: action={self._action}, order={self._order}"
        wrong = next(action for action in ACTIONS if action != self._action)
        return [
            self._guess(self._rules[0].action, "1234"),
            self._guess(self._rules[-1].action, "0000"),
            f"RESOLVE: action={'/'.join(ACTIONS)}, order={self._order}",
            f"RESOLVE: action={self._action} or {wrong}, order={self._order}",
            f"RESOLVE: action={self._action}, action={wrong}, order={self._order}",
            f"RESOLVE: action=not {wrong}, order={self._order}",
            f"RESOLVE: action={self._action}, order=the order number",
            f"RESOLVE: action={self._action}, order={', '.join(map(str, range(1000, 1300)))}",
            f"SAY: {every} We apologise and do not apologise.\n{right.replace(self._action, wrong)}",
            f"SAY: {hedged}\n{right.replace(self._action, wrong)}",
            "RESOLVE: action=, order=",
            "ASK: the solution",
            f"RESOLVE: {self._action}",
        ]


def _ago(rng: Random, days: int) -> str:
    """`I bought it two weeks and 3 days ago.`"""
    weeks, rest = divmod(days, 7)
    if not weeks or rng.random() < 0.4:
        return f"I bought it {days} day{'s' * (days > 1)} ago."
    said = f"{weeks} week{'s' * (weeks > 1)}"
    return f"I bought it {said} and {rest} day{'s' * (rest > 1)} ago." if rest else f"I bought it {said} ago."
