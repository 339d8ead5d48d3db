"""Passwords said in any of thirty languages: a word for it, a few words that join, and what no word looks like."""

import re
from collections.abc import Iterator
from enum import IntEnum

from loomrl.safety.assignment import is_stub, promise_of
from loomrl.safety.placeholder import is_placeholder
from loomrl.safety.redaction.finding import Detection, ScannedText
from loomrl.safety.redaction.prose import COMMON
from loomrl.safety.redaction.tongue import (
    ADJECTIVES,
    ALONE,
    AS,
    CHANGES,
    DEVICES,
    EASTERN,
    ENDINGS,
    HAVE,
    IN,
    IS,
    MINE,
    MY,
    PHRASES,
    STEMS,
    STILL,
    TAKES,
    TO,
    TYPES,
    USERS,
    WITH,
)


class Open(IntEnum):
    """How much a place says that what stands in it is a password."""

    SHUT = 0
    """Only what looks like one by itself."""
    LOOSE = 1
    """How readily a value is accepted as a password."""
    WIDE = 2
    """A word, too, if nothing follows."""


_WORD = re.compile(r"[^\W\d_]+")
_STEP = re.compile(r",?[ ]{1,2}(?:\([^()\n]{1,30}\)|([^\W\d_][\w'’-]{0,24}))(?=[\s,:=.('\"’—–-]|\Z)")
_SIGN = re.compile(r"[ ]?(?:=?=>|->|→|[:=]|['’]s(?=[ :])|[ ][-–—]{1,2}(?=[ ]))\s{0,4}")
_GAP = re.compile(r",?:?[ ]{0,2}(?:\r?\n[ ]{0,4})?")
_SHORT_TEXT = 40
_ALONE = re.compile(r" [a-z]{4,20}\s*\Z")
"""The whole rest of a message."""
_BEFORE_COMMA = re.compile(
    r"(?![a-z]+(?:ing|ed|ly|ble|ful|less|ive)\b)[^\W\d_]{4,20}(?:[,;]|\ (?:if|btw|but|so|wenn|falls)\b)"
)
"""A word that another part of the sentence follows."""
_NEXT = re.compile(
    r"[.!?][ \n]{1,2}(?:[^\W\d_]{1,12}[ ]){0,2}"
    r"(?:it|this|that|one|here|new|neues?|neue|es|das|dies|nouveau|voici|nueva|nuevo|nuova|nuovo"
    r"|nova|nieuwe|nya|nye|nowe|nové|новый|новий)[ ]?(?:['’]s|is|ist|lautet|est|es|è|é|är|er|to|je|:|—)[ :]{1,2}",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{6,12}(?![\w.,:/-]\d|\w)")
_QUOTES = tuple("“„«‹「『")
_ASIDE = re.compile(r"[ ]?\(([^\W\d_]{2,16}[ :]{1,2})?(?=[^()\n]{3,80}\))")
_BELOW = re.compile(r"[ ]?:?[ ]?\r?\n[ ]{0,4}(?=\S{4,80}(?<!:)[ ]{0,4}(?:\r?\n|\Z))")
_VALUE = re.compile(
    r"[*_`(\[]{0,3}(?:<(?:b|i|strong|em|code|span|kbd|td)>)?"
    r"(?:[\"'“”„«»‹›「『]{1,2}\s?(?P<quoted>[^\s\"'“”„«»‹›」』][^\"'“”„«»‹›」』\n]{2,80}?)\s?[\"'“”«»‹›」』]"
    r"|(?P<bare>[^\s\"'“”„«»‹›「」『』()\[\]{}<>`,;、。，；]{4,80}))"
)
_END = re.compile(r"[ .!*_`)\"'”»]{0,3}(?:\r?\n|<|\Z)")
_HARD = re.compile(
    r"""[+-]\d+|[A-Za-z]+['’][A-Za-z]{1,3}|\d+(?:[.,:/-]\d+)+\W?|\d+(?:[.,]\d+)?[A-Za-z%°]{1,4}|[a-z]+:.*|.*://.*|[/~.][\w./-]*|\w+(?:/\w+)+
    |(?:[A-Za-z][\w-]*\.)+[A-Za-z]{2,12}:\d+|[a-z_]\w*\(.*|[\w-]+=.*|\W+|v?\d+(?:\.\d+)+[\w.-]*|-{1,2}[a-z][\w-]*|[\w.]+(?:::|->)\w+
    |\#[^\W\d]+|[^@\s]+@[\w-]+(?:\.[\w-]+)+|\$\w+""",
    re.VERBOSE,
)
"""Times, sizes, addresses, paths, options and parts of code."""
_SOFT = re.compile(
    r"(?:[A-Za-z][\w-]*\.)+[A-Za-z]{2,12}|[^\W\d]+-?(?:\d{0,3}[.,;:)\]]?|\d?[!?])|(?:[^\W\d_]+[-/.])+[^\W\d_]+\W?|[A-Z]{1,5}-?\d{1,6}|(?:sha|md|aes|rsa|utf|base|win|mp|ipv|oauth|x)-?\d+\w*|\d+",
    re.IGNORECASE,
)
"""Words, with others or a short number behind; numbers."""
_SWITCH = re.compile("[a-z][A-Z]")
_KNOWN = COMMON | ADJECTIVES
_PARTLY = ("start", "begin", "end", "beginn", "endet", "commenc", "fini", "empiez", "termin", "inizi", "começ", "acab")
"""Beginnings of verbs that tell a part."""
_WEAK = frozenset({"clave", "chiave", "pass", "psk", "code", "word"})
"""Words that mean other things as well."""
_OTHERWISE = frozenset({"to", "on", "er", "var", "e", "as", "will"})
"""Verbs elsewhere that are other words beside an English one."""
_WIRELESS = re.compile(r"wi-?fi|wlan|router|server", re.IGNORECASE)
_REACH = 100
_STEPS = 8
_GLUE = tuple("_.$@#/\\")


def find_spoken(page: ScannedText) -> Iterator[Detection]:
    """Values that the text calls a password."""
    text = page.text
    nouns = [word for word in page.words if _is_noun(word)]
    for start in page.places(nouns):
        noun = _WORD.match(text, start)
        before = text[max(0, start - _REACH) : start]
        if noun is None or before[-1:] in _GLUE or _is_glued(text, noun.end()):
            continue
        phrase = PHRASES.get(noun[0].casefold())
        if phrase is not None:
            found = phrase.search(before)
            if found is None:
                continue
            before = before[: found.start()]
        yield from _behind(text, noun, before)
        yield from _before(text, start - (len(text[max(0, start - _REACH) : start]) - len(before)), before)
    if not text.isascii() and page.has(*EASTERN):
        yield from _eastern(text)
    for start in page.places(IN & page.words):
        yield from _typed_at_login(text, start)


_HEADS = frozenset(stem[:3] for stem in STEMS)
"""First letters of the stems, which exclude almost all other words at once."""
_LONG = min(map(len, ENDINGS)) + 2


def _is_noun(word: str) -> bool:
    if word[:3] in _HEADS and word.startswith(STEMS):
        return True
    return word in ALONE or word in PHRASES or (len(word) > _LONG and word.endswith(ENDINGS))


def _is_glued(text: str, end: int) -> bool:
    """True inside of a name of code."""
    return text[end : end + 1] in ("_", "(", "[", ".") and text[end + 1 : end + 2].strip() != ""


def _behind(text: str, noun: re.Match[str], before: str) -> Iterator[Detection]:
    """The password behind a word for it, step by step."""
    word = noun[0].casefold()
    is_foreign = not word.isascii() and not noun[0][0].isascii()
    leading = before.casefold().split()[-3:]
    is_held = not (HAVE | AS).isdisjoint(leading[-1:])
    is_held |= len(leading) > 1 and leading[-2] in HAVE and len(leading[-1]) < 4  # an article
    is_mine = not MY.isdisjoint(leading)
    is_english = word.startswith(("pass", "pw"))
    at = noun.end()
    wide = Open.LOOSE if word in _WEAK and not _WIRELESS.search(text[at : at + 20]) else Open.WIDE
    below = _BELOW.match(text, at)
    if below is not None and (found := value_at(text, below.end(), wide)):
        yield found
        return
    kind = ""
    for step in range(_STEPS):
        sign = _SIGN.match(text, at)
        if sign is not None:
            is_left = (
                is_english and step == 0 and sign[0].strip() in (":", "=") and promise_of(noun[0]) is not None
            )  # to assignments
            left = Open.LOOSE if sign[0].endswith(" ") and ":" in sign[0] else Open.SHUT
            left = wide if text[sign.end() : sign.end() + 1] in _QUOTES else left
            found = value_at(text, sign.end(), left if is_left else wide)
            if found is not None:
                yield found
            return
        aside = _ASIDE.match(text, at)
        if aside is not None:
            is_now = is_mine or (aside[1] or "").casefold().strip(" :") in STILL
            found = value_at(text, aside.end(), wide if is_now else Open.LOOSE, is_last=not is_now)
            if found is not None:
                yield found
                return
        if step == 0 and not is_english and len(text) < _SHORT_TEXT and text[:at].count(" ") <= 2:
            is_held |= word not in _WEAK and _ALONE.match(text, at) is not None
        if step < 3:
            gap = _GAP.match(text, at)
            is_said = step == 0 and (word in MINE or is_foreign or is_held or _is_login(before))
            is_loose = (step == 0 and not is_english) or (step == 1 and kind in DEVICES)
            is_open = Open.WIDE if is_said else Open.LOOSE if is_loose and word not in _WEAK else Open.SHUT
            found = value_at(text, gap.end() if gap else at, is_open)
            if found is None and step == 0:
                found = _number(text, gap.end() if gap else at)
            if found is not None and gap is not None and gap.end() > at:
                yield found
                return
        joint = _STEP.match(text, at)
        if joint is None:
            yield from _next_sentence(text, at)
            return
        at = joint.end()
        last = kind
        kind = (joint[1] or "").casefold()
        gap = _GAP.match(text, at)
        if gap is None or gap.end() == at:
            continue
        if (kind in IS or (kind in STILL and last in IS)) and not (is_english and kind in _OTHERWISE):
            found = value_at(text, gap.end(), wide)
            if found is None and is_mine and _BEFORE_COMMA.match(text, gap.end()):
                found = value_at(text, gap.end(), wide, is_last=False)
        elif kind in TO and word not in _WEAK:
            is_changed = any(map(_is_changed, (before[-40:], text[noun.end() : at], text[at : at + 100])))
            found = value_at(text, gap.end(), Open.WIDE if is_changed else Open.SHUT, is_last=not is_changed)
        elif kind in WITH and last.startswith(_PARTLY):
            found = value_at(text, gap.end(), wide, is_last=False)
        elif kind in TYPES:
            found = value_at(text, gap.end(), Open.SHUT)
        else:
            continue
        if found is not None:
            yield found
            return


def _next_sentence(text: str, at: int) -> Iterator[Detection]:
    """The password in the next sentence: `I reset your password. The new one is …`"""
    link = _NEXT.match(text, at)
    found = None if link is None else value_at(text, link.end(), Open.WIDE)
    if found is not None:
        yield found


def _number(text: str, at: int) -> Detection | None:
    """A number right behind a word for a password."""
    match = _NUMBER.match(text, at)
    return None if match is None else Detection(*match.span(), "password")


def _is_changed(text: str) -> bool:
    return any(word.startswith(CHANGES) for word in text.casefold().split())


def _is_login(before: str) -> bool:
    """True behind a user's name: `user ada, …`."""
    words = [word.strip(",:") for word in before.casefold().split()[-5:]]
    places = [place for place, word in enumerate(words) if word in USERS]
    return (
        bool(places)
        and len(words) - places[-1] in (2, 3, 4)
        and words[places[-1] + 1] not in ("name", "and", "id", "or")
    )


def _before(text: str, end: int, before: str) -> Iterator[Detection]:
    """The password before the word: `use … as the password`, `"…" is my password`."""
    words = list(re.finditer(r"\S+", before))
    for place in range(len(words) - 1, max(0, len(words) - 4), -1):
        word = words[place][0].casefold()
        if word not in AS and not (word in IS and place >= len(words) - 2):
            continue
        start = end - len(before) + words[place - 1].start()
        is_verb = word in AS and place > 1 and words[place - 2][0].isalpha()
        is_open = Open.LOOSE if words[place - 1][0].isalpha() else Open.WIDE
        found = value_at(text, start, is_open, end=end - len(before) + words[place - 1].end())
        if found is None and is_verb and place >= len(words) - 2:
            found = value_at(text, start, Open.WIDE, end=end - len(before) + words[place - 1].end(), is_last=False)
            verb = words[place - 2][0].casefold()
            found = found if verb.startswith(TAKES) else None
        if found is not None:
            yield found
            return


def _is_user(words: list[re.Match[str]], place: int) -> bool:
    """True for `as ada with …`: a name, and what joins it to the words before."""
    joint = words[place - 3][0].casefold()
    name = words[place - 2][0]
    return (joint in AS or joint in WITH or joint in ("que", "jako")) and name.islower() and name not in _ARTICLES


_ARTICLE = "your the a an my this that any der die das dem einem le la un une el il lo o um de het en"
_ARTICLES = frozenset(_ARTICLE.split())
_HALVES = ("log", "sign", "logs", "signs")


_ENTRY = re.compile(r"[^\W\d_]+(?:[ -](?:in|on|into|als|ind|inn|as)\b|-(?:toi|vous)\b)", re.IGNORECASE)
_NAMED = re.compile(r"[^\W\d_]++[\w.(\[-]")


def _is_entry(text: str, start: int) -> bool:
    """True for words that log in; a half of them alone, or a name of code, does not."""
    if text[max(0, start - 1) : start] in _GLUE:
        return False
    if _ENTRY.match(text, start):
        return True
    word = _WORD.match(text, start)
    return _NAMED.match(text, start) is None and word is not None and word[0].casefold() not in _HALVES


def _typed_at_login(text: str, start: int) -> Iterator[Detection]:
    """The password behind a user's name: `log in as ada with …`, or what is typed at a login."""
    if not _is_entry(text, start):
        return
    words = list(re.finditer(r"\S+", text[start : start + _REACH].partition("\n")[0]))
    is_typed = not TYPES.isdisjoint(text[max(0, start - 30) : start].casefold().split())
    for place in range(1, min(len(words), 10)):
        before = words[place - 1][0].casefold()
        is_open = Open.LOOSE if place > 2 and (before in WITH or before == "/") else None
        if is_open is not None and _is_user(words, place):
            is_open = Open.WIDE
        if is_open is None and is_typed and place < 4:
            is_open = Open.SHUT
        found = None if is_open is None else value_at(text, start + words[place].start(), is_open)
        if found is not None:
            yield found
            return


def mentions(text: str) -> bool:
    """True if a text has a word for a password."""
    return any(map(_is_noun, ScannedText(text).words)) or (
        not text.isascii() and _EASTERN_NOUN.search(text) is not None
    )


def value_at(text: str, at: int, is_open: Open, *, end: int | None = None, is_last: bool = True) -> Detection | None:
    """The password at a place, if there is one."""
    match = _VALUE.match(text, at) if end is None else _VALUE.match(text, at, end)
    if match is None:
        return None
    is_quoted = match["quoted"] is not None
    value = match["quoted"] or match["bare"].rstrip(".,;:")
    if value.endswith("**") or (value.endswith("*") and match[0].startswith("*")):
        value = value.rstrip("*")
    if len(value) < 3 or is_placeholder(value) or is_stub(value) or promise_of(value) is not None:
        return None
    start = match.start("quoted" if is_quoted else "bare")
    found = Detection(start, start + len(value), "password")
    if is_strong(value):
        return found
    if is_open is Open.SHUT or value.casefold().rstrip("!?") in _KNOWN or _HARD.fullmatch(value):
        return None
    if is_quoted:
        return found if " " not in value or is_open is Open.WIDE else None
    if not re.sub("[-.]", "", value).isalpha():
        return found if len(value) >= (5 if value.isdigit() and is_open is Open.LOOSE else 4) else None
    is_word = is_open is Open.WIDE and value.isascii() and "-" not in value
    return found if is_word and (not is_last or _END.match(text, start + len(value))) else None


def is_strong(value: str) -> bool:
    """True for what looks like a password wherever it stands."""
    if len(value) < 4 or " " in value or _HARD.fullmatch(value):
        return False
    if value.isalpha():
        return len(value) >= 8 and 4 * len(_SWITCH.findall(value)) >= len(value)
    return _SOFT.fullmatch(value) is None


# -- writing without spaces, or with parts before words ---------------------------------------------------------------

_FOREIGN = r"!-~\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff"
_EASTERN_NOUN = re.compile("|".join(sorted(EASTERN, key=len, reverse=True)))
_EASTERN_AFTER = re.compile(
    rf"(?P<fill>[^{_FOREIGN}\n。？]{{0,30}}?(?:[ ]?(?:wi-?fi|vpn|wlan|ssh|root|admin)[^{_FOREIGN}\n。]{{0,10}})?)"
    rf"(?P<sign>[\s:=*`_(\[\"'“「『-]{{0,4}})(?P<bare>(?:(?![\"'`,;()<>\[\]{{}}])[{_FOREIGN}]){{4,80}})"
)
_STARTS = (
    "passw",
    "kennw",
    "user",
    "login",
    "admin",
    "http",
    "www",
    "wifi",
    "windows",
    "google",
    "gmail",
    "email",
    "server",
)


def _eastern(text: str) -> Iterator[Detection]:
    for noun in _EASTERN_NOUN.finditer(text):
        match = _EASTERN_AFTER.match(text, noun.end())
        if match is None:
            continue
        value = match["bare"].rstrip(".,;:")
        if len(value) < 4 or is_stub(value) or is_placeholder(value) or value.lower().startswith(_STARTS):
            continue
        if value.isdigit() and match["sign"].strip() == "-":
            continue
        reach = 24 if any(map(str.isdigit, value)) else 16
        is_near = len(match["fill"]) < reach or match["sign"].strip() != ""
        if is_strong(value) or (is_near and _HARD.fullmatch(value) is None):
            yield Detection(match.start("bare"), match.start("bare") + len(value), "password")
