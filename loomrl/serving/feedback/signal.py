"""Implicit feedback: what a session shows by itself, without anybody having said it. A pure function of its record.

`asked_again`  the person puts the question anew that the answer was for
`corrected`    the person says that the answer was wrong or not what was meant, or gives it back with changes
`left`         the session fell silent after an answer that was broken off, or with a tool's result still to come

All three are guesses, and made to be few: `loomrl.serving.feedback.signal` says what is taken for what.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from loomrl.canonical import content_hash
from loomrl.serving.recording.record import CallRecord, RecordedCall, Words
from loomrl.serving.recording.trajectory import EndedSession
from loomrl.types import Feedback

LEAST_WORDS = 3
"""Words of a question; shorter ones are repeated for other reasons ("yes", "go on")."""
LEAST_LETTERS = 6
"""Letters of a question in a script without spaces."""
LONGEST = 2_000
"""Characters of a text that is compared; of longer ones only the beginning is looked at."""
LONG_WORD = 6
"""Letters of a word in which one letter may differ: a slip of the fingers."""
REWRITTEN = 0.7
"""Share of the words of an answer that a rewritten one keeps in order."""
LEAST_REWRITTEN = 8
"""Words that an answer needs to be worth a rewrite."""

_FILLERS = frozenset(
    """
    please again so hey hi hello ok okay well bitte nochmal nochmals noch einmal also hallo encore fois bonjour alors
    por favor otra vez hola bueno favore ancora volta ciao allora novo alsjeblieft nogmaals
    пожалуйста еще ещё раз привет
    """.split()  # noqa: SIM905 - words are read more easily so
)
"""Words that a repeated question has more or less of: please, again, and greetings."""
_FURTHER = re.compile(
    r"\b(?:more|another|next|continue|go on|keep going|weiter\w*|noch (?:ein|mehr)\w*|nächste\w*|mehr|"
    r"continue[zr]?|suivante?s?|une? autres?|plus|sigue|continúa|continua|siguientes?|otr[oa]s?(?! vez)|más|"
    r"prossim[oaie]|altr[oaie]|avanti|próxim[oa]s?|outr[oa]s?|mais|volgende|meer|nog een|verder|"
    r"дальше|следующ\w+|продолж\w+|друг\w+)\b|"
    r"继续|下一|再来|更多|另一|続けて|次の|もう一|もっと|他の"
)
"""Asks for a further answer of the kind: no complaint about this one."""
_SPACELESS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+|[^\w\s.,!?;:…'\"“”„«»()\[\]¿¡，。！？；：、「」（）]")
"""A word or a sign that makes another question: 7 + 5 is not 7 - 5."""
_QUESTION = re.compile(r"[?？؟]\W*$")

_MEANT = (
    r"no[,.!]? (?:i|what i) meant(?! to\b)|i meant(?! to\b)|i didn'?t mean|not what i (?:asked|meant|wanted|said)|"
    r"(?:no[,.!]? )?(?:that'?s|that is|you'?re|you are) "
    r"(?:not (?:right|correct|true|what i (?:asked|meant|wanted|said))|wrong\b|incorrect|mistaken)|"
    r"(?:no[,.!]? )?(?:this is|it'?s) (?:not (?:right|correct)|wrong|incorrect)(?=[,.!:;]|$)|"
    r"(?:no[,.!]? )?you (?:misunderstood|got (?:it|that) wrong)|(?:wrong|incorrect)(?=[,.!:;]|$)",
    r"nein[,.!]? ich (?:meinte|habe .{0,40}gemeint)|ich meinte|das habe ich nicht (?:gemeint|gefragt|gesagt)|"
    r"(?:nein[,.!]? )?(?:das|dies) (?:ist|war) (?:falsch|nicht (?:richtig|korrekt|das,? was))|"
    r"(?:nein[,.!]? )?das stimmt nicht|"
    r"(?:nein[,.!]? )?du hast mich falsch verstanden|falsch(?=[,.!:;]|$)",
    r"non[,.!]? je (?:voulais|parlais)|je voulais dire|(?:non[,.!]? )?c'est (?:faux|incorrect|pas (?:ça|ce que))|"
    r"(?:non[,.!]? )?ce n'est pas (?:ça|correct|ce que)|tu (?:m'as mal compris|te trompes)|vous vous trompez",
    r"no[,.!]? (?:quise decir|quería decir|me refería)|quise decir|me refería a|"
    r"(?:no[,.!]? )?eso (?:no es (?:correcto|lo que|cierto)|está mal|es incorrecto)|"
    r"no es lo que (?:pedí|pregunté|quería)|"
    r"(?:no[,.!]? )?te equivocas",
    r"no[,.!]? (?:intendevo|volevo dire)|intendevo|volevo dire|(?:no[,.!]? )?(?:è|questo è) (?:sbagliato|errato)|"
    r"(?:no[,.!]? )?non è (?:corretto|giusto|quello che)|(?:no[,.!]? )?ti sbagli",
    r"não[,.!]? (?:eu )?(?:quis dizer|queria dizer)|(?:eu )?quis dizer|(?:não[,.!]? )?(?:isso )?está errado|"
    r"(?:não[,.!]? )?(?:isso )?não (?:é|foi) (?:isso|o que|correto)|você (?:me )?entendeu (?:mal|errado)",
    r"nee[,.!]? ik bedoel\w*|ik bedoelde|(?:nee[,.!]? )?dat (?:is (?:fout|onjuist|niet (?:juist|wat))|klopt niet)",
    r"нет[,.!]? я (?:имел\w?|говорил\w?)|я имел\w? в виду|(?:нет[,.!]? )?это (?:неверно|неправильно|не то\b)|"
    r"(?:неправильно|неверно)(?=[,.!:;]|$)",
    r"(?:不[,，。!！]? ?|不是[,，。!！] ?)?我的意思是|(?:不[,，。!！] ?|不是[,，。!！] ?)我是(?:说|問|问)|"
    r"(?:这|那|你)?(?:不对|错了|答错了|不正确)(?=[,，。.!！ ]|$)|"
    r"我问的不是",
    r"(?:いや|いいえ|ちが(?:う|います)|違(?:う|います))[、。,!！]|違います(?!か)|間違って(?:います|いる|ます|る)(?!か)|そうじゃなくて|そうではなく",
)
_CORRECTS = re.compile(rf"\W*(?:(?:{'|'.join(_MEANT)}))")


def asks_again(question: str, later: str) -> bool:
    """True if a person repeats a question: the same words in the same order but for fillers and one slip."""
    if max(len(question), len(later)) > LONGEST or _FURTHER.search(fold(later)):
        return False
    first = _question_words(question)
    second = _question_words(later)
    if len(first) != len(second) or not _is_long(first):
        return False
    others = [(one, other) for one, other in zip(first, second, strict=True) if one != other]
    return len(others) <= 1 and all(_is_slip(one, other) for one, other in others)


def corrects(answer: str, later: str) -> bool:
    """True if a person begins by saying that the answer was wrong, or not what was meant.

    Never after an answer that ended with a question: then it is a reply.
    """
    return not asks(answer) and _CORRECTS.match(fold(later)) is not None


def rewrites(answer: str, later: str) -> bool:
    """True if a person gives the answer back with changes."""
    if max(len(answer), len(later)) > LONGEST:
        return False
    before, after = _WORD.findall(fold(answer)), _WORD.findall(fold(later))
    if len(before) < LEAST_REWRITTEN or before == after or not 0.75 <= len(after) / len(before) <= 1.33:
        return False
    if later.count("?") > answer.count("?") or later.lstrip().startswith(">"):
        return False  # asks about it
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return matcher.quick_ratio() >= REWRITTEN and matcher.ratio() >= REWRITTEN


def asks(answer: str) -> bool:
    """True if a text ends with a question."""
    return _QUESTION.search(answer[-200:]) is not None


def fold(text: str) -> str:
    """The text in lower case, with one form of each letter, apostrophe and space."""
    text = unicodedata.normalize("NFKC", text[:LONGEST]).casefold().replace("\u2019", "'")
    return " ".join(text.split())


def _question_words(text: str) -> list[str]:
    """The words of a question without fillers; the letters, in a script without spaces."""
    words: list[str] = _TOKEN.findall(fold(text))
    if _SPACELESS.search(text):
        return list("".join(words))
    return [word for word in words if word not in _FILLERS]


def _is_long(words: list[str]) -> bool:
    is_spaceless = any(_SPACELESS.match(word) for word in words)
    return len(words) >= (LEAST_LETTERS if is_spaceless else LEAST_WORDS)


def _is_slip(one: str, other: str) -> bool:
    """True for two long words without digits that differ in one letter, or in two that changed places."""
    if min(len(one), len(other)) < LONG_WORD or not (one + other).isalpha():
        return False
    if len(one) == len(other):
        at = [index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
        swapped = len(at) == 2 and at[1] == at[0] + 1 and (one[at[0]], one[at[1]]) == (other[at[1]], other[at[0]])
        return len(at) == 1 or swapped
    short, long = sorted((one, other), key=len)
    return len(long) == len(short) + 1 and any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


VALUES = {"asked_again": 0.2, "corrected": 0.2, "left": 0.0}


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answer, with the question that the person had asked before it."""

    record: CallRecord
    words: Words
    question: str

    @property
    def call(self) -> str:
        """The answer's name in feedback."""
        return answer_name(self.record, self.words.index)


def answer_name(record: CallRecord, index: int) -> str:
    """The name of one answer: its call's id, and its number if the call has several."""
    return record.id if len(record.choices) == 1 else f"{record.id}/{index}"


def signals(session: EndedSession, calls: Sequence[RecordedCall]) -> list[Feedback]:
    """The implicit feedback of an ended session; the same each time, under the same ids."""
    answers: dict[str, _Answered] = {}
    found: list[Feedback] = []
    for call in calls:
        record = call.record
        before = answers.get(record.parent)
        if before is not None:
            found += _reaction(session, before, record)
        question = _said(record) or ("" if before is None else before.question)
        for words in record.choices:
            answers[f"{record.id}/{words.index}"] = _Answered(record, words, question)
    return [*found, *_departure(session, [call.record for call in calls])]


def _reaction(session: EndedSession, before: _Answered, record: CallRecord) -> Iterator[Feedback]:
    """Feedback in the person's next words on the answer before them.

    An answer that was broken off, or that a rule of ours replaced, was not judged.
    """
    said = _said(record)
    answer = before.words.text
    if not said or before.words.finish == "cancelled" or before.words.rule:
        return
    by = {"by": record.id}
    if corrects(answer, said):
        yield _feedback(session, "corrected", before.call, by, record.started_at)
    elif rewrites(answer, said):
        yield _feedback(session, "corrected", before.call, {**by, "text": said}, record.started_at)
    elif asks_again(before.question, said):
        yield _feedback(session, "asked_again", before.call, by, record.started_at)


def _departure(session: EndedSession, records: Sequence[CallRecord]) -> Iterator[Feedback]:
    """The session's end by silence, if something was still to come.

    A caller who always breaks off means nothing by it. A session that a rule of ours stopped may have had no way on:
    a block of ours is not the person's displeasure.
    """
    if session.ending.cause == "told" or not records or any(words.rule for one in records for words in one.choices):
        return
    last = max(records, key=lambda record: record.finished_at)
    finishes = {words.finish for words in last.choices}
    if finishes == {"cancelled"}:
        has_left = not any(_is_cut(record) for record in records if record is not last)
    else:
        has_left = finishes == {"tool_calls"} and any(_has_result(record) for record in records)
    if has_left:
        yield _feedback(session, "left", last.id, {}, session.ending.at)


def _said(record: CallRecord) -> str:
    """The person's new words: the last message, if it is a user's."""
    last = record.messages[-1] if record.messages else None
    return last.text if last is not None and last.role == "user" else ""


def _is_cut(record: CallRecord) -> bool:
    return any(words.finish == "cancelled" for words in record.choices)


def _has_result(record: CallRecord) -> bool:
    return any(message.role == "tool" for message in record.messages)


def _feedback(session: EndedSession, kind: str, call: str, data: Mapping[str, str], at: float) -> Feedback:
    return Feedback(
        id=f"fb-{content_hash(['implicit', session.id, kind, call])[:32]}",
        trajectory=session.id,
        source="implicit",
        kind=kind,
        value=VALUES[kind],
        created_at=at,
        call=call,
        data=data,
    )
