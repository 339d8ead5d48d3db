"""The commands of an environment that is played in turns: from its episodes, its texts and its source."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from loomrl.gym.attack.attempt import Family
from loomrl.gym.attack.shape import ARGUMENT, LONGEST_COMMAND, changed
from loomrl.gym.attack.source import Source

NUMBERS = ("-1", "0", "1000000", "-100", "0.5", "1", "nan", "1e999", "-0")
WORDS = ("", "*", "all", "..", "me", "self", "none", "0", "-1")
VERBS = (
    *("help", "look", "finish", "submit", "done", "stop", "exit", "quit", "end", "close", "wait", "pass", "skip"),
    *("undo", "reset", "restart", "save", "load", "status", "admin", "debug", "cheat", "win", "solve", "approve"),
)
MOST_VERBS = 24
MOST_OBJECTS = 14
_SHOWN = re.compile(
    r"`([^`\n]{1,60})`|\"([^\"\n]{1,60})\"|'([^'\n]{1,60})'"
    r"|(?m:^\s*[-*]?\s*(/?[a-z_]+(?: [^\s:]+)?)(?=\s*[:(–-]|$))"
)
_PLACE = re.compile(r"<[^<>]+>|\[[^\[\]]+\]|\{[^{}\"]+\}|\b[A-Z][A-Z_]+\b|\.\.\.")
_BEFORE_PLACE = re.compile(r"(/?\b[a-z_]+) (?:<[^<>]+>|\[[^\[\]]+\]|\{[^{}]+\}|[A-Z][A-Z_]+\b)")


def mutants(action: str) -> Iterator[str]:
    """The action with each number, and its last argument, at a bound."""
    if len(action) > LONGEST_COMMAND:
        return
    for found in list(ARGUMENT.finditer(action))[:3]:
        yield from (action[: found.start()] + each + action[found.end() :] for each in NUMBERS)
    for value in WORDS:
        text = changed(action, value, number=False)
        if text is not None:
            yield text.strip() if value == "" else text


def commands(family: Family, source: Source, texts: Sequence[str]) -> list[str]:
    """Commands to try, the most promising first; `texts` are what the environment says about itself."""
    said = Counter(action for each in family.samples for action in (*each.oracle, *each.moves))
    known = [each for each, _ in said.most_common(60) if len(each) <= LONGEST_COMMAND]
    shown = [next(filter(None, found.groups()), "") for text in texts for found in _SHOWN.finditer(text)]
    before = [found[1] for text in texts for found in _BEFORE_PLACE.finditer(text)]
    literals = [each for each in source.literals if len(each) <= 40 and "\n" not in each][:80]
    heads = Counter(each.split()[0] for each in known if each.split() and "{" not in each)
    verbs = [each for each, _ in heads.most_common(MOST_VERBS)]
    verbs += [each.strip() for each in (*before, *shown, *literals) if re.fullmatch(r"/?[\w-]+:? ?", each)]
    rests = Counter(each.partition(" ")[2] for each in known if "{" not in each)
    objects = [each for each, _ in rests.most_common(MOST_OBJECTS) if each]
    named = [each for each in literals if re.fullmatch(r"[\w-]+", each)][:MOST_OBJECTS]
    out = [*known, *(_PLACE.sub("1", each) for each in shown), *literals, *VERBS]
    patterns: dict[str, str] = {}
    for action in known:
        patterns.setdefault(re.sub(r"\d+", "#", action.partition(" ")[0] if "{" not in action else action), action)
    for action in list(patterns.values())[:16]:
        out += mutants(action)
    for verb in list(dict.fromkeys(verbs))[: 2 * MOST_VERBS]:
        out += [verb, *(f"{verb} {each}" for each in dict.fromkeys((*objects, *NUMBERS[:4], *WORDS[1:5], *named)))]
    for action in list(patterns.values())[:8]:
        # A tool's hidden names and values, in the form of a known call.
        quoted = list(re.finditer(r'"([^"]*)"(?!\s*:)', action))
        for found in quoted[:4]:
            out += [action[: found.start(1)] + each + action[found.end(1) :] for each in named]
    return list(dict.fromkeys(out))
