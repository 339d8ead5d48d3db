"""Recall, harm and time of redaction on drawn texts: `python -m tests.safety.measure` prints a table.

With files, `python -m tests.safety.measure FILE...`, it says what in them is taken for a secret, addresses apart.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from loomrl.safety.redaction import PatternRedactor, Redaction
from tests.safety.draw import Draw, Form, Planted

NEUTRAL = (
    "{}",
    "use {} please",
    "It is {}.",
    'x = "{}"',
    "f('{}')",
    "- {}",
    "| {} | yes |",
    "a, {}, b",
    "({})",
    "`{}`",
    '{{"value": "{}"}}',
    "first line\n{}\nlast line",
    "https://example.com/?x={}",
    "2026-03-12 06:25:01 INFO got {}",
)
"""Texts that say nothing about what is in them."""
TURN = "␞"
"""Between two messages of one session."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Of the secrets of a class: how many are gone, and the forms of those that are not."""

    gone: int
    count: int
    missed: Mapping[str, int]
    """By the form's number and an example."""

    @property
    def share(self) -> float:
        return self.gone / self.count


def classes(module: ModuleType) -> dict[str, Sequence[Form]]:
    """The lists of forms of a module, by name."""
    return {name.lower(): value for name, value in vars(module).items() if name.isupper() and isinstance(value, list)}


def planted(name: str, forms: Sequence[Form], each: int) -> list[tuple[int, Planted]]:
    """`each` texts of every form, with the form's number; a bare secret is put into some neutral text."""
    found = []
    for number, form in enumerate(forms):
        draw = Draw(f"{name}/{number}")
        for _ in range(each):
            one = draw.planted(form)
            if one.secrets == (one.text,):
                one = Planted(draw.random.choice(NEUTRAL).format(one.text), one.secrets)
            found.append((number, one))
    return found


def is_gone(secret: str, text: str) -> bool:
    """True if not even half of the secret is left."""
    size = min(len(secret), max(6, len(secret) // 2))
    return not any(secret[start : start + size] in text for start in range(len(secret) - size + 1))


def cleans(texts: Mapping[str, str], each: int) -> list[tuple[str, str]]:
    """`each` documents of every kind, with the kind."""
    return [(kind, Draw(f"{kind}/{number}").fill(texts[kind])) for kind in texts for number in range(each)]


def redacted(text: str) -> str:
    """The text as it would be stored: messages of one session, one after the other."""
    if TURN not in text:
        return PatternRedactor().redact(text).text
    redaction = Redaction(PatternRedactor())
    return redaction.whole(lambda work: TURN.join(map(work.said, text.split(TURN))))


def recalls(modules: Iterable[ModuleType], each: int) -> dict[str, Recall]:
    """By class: of the secrets in so many texts of every form, how many redaction removes."""
    found = {}
    for module in modules:
        for name, forms in classes(module).items():
            missed: Counter[str] = Counter()
            count = 0
            for number, one in planted(name, forms, each):
                text = redacted(one.text)
                left = [secret for secret in one.secrets if not is_gone(secret, text)]
                missed.update([f"{number}: {one.text}"] * len(left))
                count += len(one.secrets)
            found[name] = Recall(count - missed.total(), count, missed)
    return found


def altered(texts: Mapping[str, str], each: int) -> list[str]:
    """The clean documents in which redaction finds something, and what."""
    find = PatternRedactor().find
    return [f"{kind}: {text[one.start : one.end]}" for kind, text in cleans(texts, each) for one in find(text)[:1]]


def ms_per_kb(texts: Sequence[str]) -> float:
    """CPU time of one thread by kilobyte of UTF-8, the least of three times."""
    find, times = PatternRedactor().find, []
    for _ in range(3):
        started = time.thread_time()
        for text in texts:
            find(text)
        times.append(time.thread_time() - started)
    return min(times) * 1e3 / (sum(len(text.encode()) for text in texts) / 1024)


def main(each: int = 40) -> None:
    """Print the tables of docs/redaction.md."""
    from tests.safety.heldout import benign, clean_code, clean_text, hostile, key, later, password, person, said
    from tests.safety.tuned import benign as tuned_benign
    from tests.safety.tuned import hostile as tuned_hostile
    from tests.safety.tuned import said as tuned_said

    first, second = recalls((key, password, person), each), recalls((later,), each)
    print("| class | held out | later |")
    print("|---|---|---|")
    for name in first:
        print(f"| {name} | {first[name].share:.3f} of {first[name].count} | {second[name].share:.3f} |")
    for name, texts in (("code, logs, settings", clean_code.CODE), ("prose, maths, tables", clean_text.TEXT)):
        documents = [text for _, text in cleans(texts, each)]
        whole = ["\n\n".join(documents)[:200_000]]
        print(f"\n{name}: {len(altered(texts, each))} of {len(documents)} altered; ", end="")
        print(f"{ms_per_kb(documents):.2f} ms/KB one by one, {ms_per_kb(whole):.2f} in one text", end="")
    print("\n\n| class | tuned | held out |")
    print("|---|---|---|")
    first, second = recalls((tuned_hostile, tuned_said), each), recalls((hostile, said), each)
    for name, one in second.items():
        print(f"| {name.replace('_', ' ')} | {first[name].share:.3f} | {one.share:.3f} of {one.count} |")
    for name, texts in (("tuned", tuned_benign.TEXTS), ("held out", benign.TEXTS)):
        print(f"\nlines in which nothing is secret, {name}: {len(altered(texts, each))} of {len(texts) * each}", end="")
    print()


def look(files: Sequence[str], size: int = 4000) -> None:
    """Print the findings in passages of files, other than addresses, and their share."""
    texts = [Path(file).read_text(errors="replace") for file in files if Path(file).is_file()]
    passages = [text[start : start + size] for text in texts for start in range(0, len(text), size)]
    touched = 0
    for passage in passages:
        found = [one for one in PatternRedactor().find(passage) if one.kind != "email"]
        touched += bool(found)
        for one in found:
            print(f"{one.kind}: {passage[max(0, one.start - 40) : one.end + 10]!r}")
    print(f"{touched} of {len(passages)} passages of {size} characters; {ms_per_kb(passages):.2f} ms/KB")


if __name__ == "__main__":
    look(sys.argv[1:]) if len(sys.argv) > 1 else main()
