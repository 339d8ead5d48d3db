"""What a session shows by itself: seen where it is plain, and not seen where it is not."""

import random

import numpy as np
import pytest

from loomrl.serving.call import ChatMessage, ChatRequest, ToolCall
from loomrl.serving.feedback.signal import asks_again, corrects, rewrites, signals
from loomrl.serving.recording.record import CallToRecord, SessionEnding, SpokenChoice, make_answers, make_recorded
from loomrl.serving.recording.trajectory import EndedSession
from loomrl.types import Feedback

IDLE = SessionEnding(at=99.0, cause="idle")


AGAIN = """
What is the capital of Austria? → what is the capital of austria
What is the captial of France? → What is the capital of France?
How do I sort a list? → Please, again: how do I sort a list?
Wie hoch ist der Eiffelturm? → Nochmal bitte: wie hoch ist der Eiffelturm?
Quelle est la capitale du Pérou ? → Encore : quelle est la capitale du Pérou ?
¿Cuál es la capital de Perú? → Por favor, ¿cuál es la capital de Perú?
Какая столица у Перу? → Ещё раз: какая столица у Перу
法国的首都是哪里？ → 法国的首都是哪里
フランスの首都はどこですか → フランスの首都はどこですか？
What is 7 + 5? → what is 7+5
"""


@pytest.mark.parametrize("pair", AGAIN.strip().splitlines())
def test_a_question_that_is_put_again_is_seen(pair: str) -> None:
    assert asks_again(*pair.split(" → "))


ANOTHER = """
What is the capital of Austria? → What is the capital of Australia?
Translate cat into French → Translate dog into French
What is 17 times 23? → What is 17 times 24?
What is 7 + 5? → What is 7 - 5?
Is Anna taller than Bert? → Is Bert taller than Anna?
Tell me a joke about cats → Tell me another joke about cats
Tell me another joke please → Tell me another joke please
go on → go on
yes → yes
下一个问题是什么呢 → 下一个问题是什么呢
日本の首都はどこですか → 英国の首都はどこですか
What is the capital of Austria? → Thank you! And of Hungary?
"""


@pytest.mark.parametrize("pair", ANOTHER.strip().splitlines())
def test_another_question_is_not_taken_for_the_same(pair: str) -> None:
    assert not asks_again(*pair.split(" → "))


def test_the_end_of_a_long_question_counts_too() -> None:
    assert not asks_again("x" * 5000 + " one", "x" * 5000 + " two")


CORRECTIONS = """
No, I meant Bern.
That's wrong.
that is not what I asked
Wrong, it is 4.
You misunderstood me.
Nein, ich meinte Bern.
Das stimmt nicht.
Das ist nicht das, was ich wollte
C'est faux.
Non, je voulais dire Berne.
No, quise decir Berna.
Eso no es lo que pregunté
No, intendevo Berna.
È sbagliato.
Não, eu quis dizer Berna.
Nee, ik bedoelde Bern.
Dat klopt niet.
Нет, я имел в виду Берн.
Это неверно.
不，我的意思是伯尔尼
不对，是伯尔尼
違います、ベルンです
そうじゃなくて、ベルンです
"""


@pytest.mark.parametrize("said", CORRECTIONS.strip().splitlines())
def test_a_correction_is_seen_in_ten_languages(said: str) -> None:
    assert corrects("It is Zurich.", said)
    assert not corrects("Do you mean Zurich?", said), "a reply to a question"


NO_CORRECTIONS = """
No problem, thanks!
No.
I meant to ask about cats, too.
Wrong answers in tests are bad, aren't they?
It's wrong to lie, isn't it?
That's not bad.
Incorrect use of commas matters
Nein danke.
Das ist nicht das Problem.
Это не только Берн
不对称加密是什么？
違いますか？
Nobody meant it.
"""


@pytest.mark.parametrize("said", NO_CORRECTIONS.strip().splitlines())
def test_other_words_are_no_correction(said: str) -> None:
    assert not corrects("It is Zurich.", said)


def test_an_answer_that_is_given_back_with_changes_is_rewritten() -> None:
    answer = "The capital of Switzerland is Zurich, a large city in the north."
    assert rewrites(answer, "The capital of Switzerland is Bern, a large city in the west.")
    assert not rewrites(answer, answer), "a quotation"
    assert not rewrites(answer, "> " + answer.replace("large", "big"))
    assert not rewrites(answer, answer.replace("Zurich", "Bern") + " Is that so?"), "a question about it"
    assert not rewrites(answer, "And what about Austria? I was there once, a large city in the east.")
    assert not rewrites("Bern, of course.", "Bern, for sure."), "too short to tell"


class Talk:
    """A session that is written down."""

    def __init__(self) -> None:
        self.calls: list[CallToRecord] = []
        self._messages: tuple[ChatMessage, ...] = ()

    def say(
        self, text: str, answer: str, *, finish: str = "stop", role: str = "user", at: float = 0.0, rule: str = ""
    ) -> "Talk":
        nothing, number = np.zeros(0, np.int32), len(self.calls)
        self._messages = (*self._messages, ChatMessage(role=role, text=text))  # type: ignore[arg-type]
        calls = (ToolCall(id="t", name="look", arguments="{}"),) if finish == "tool_calls" else ()
        choice = SpokenChoice(
            index=0, opened_T=nothing, ids_T=nothing, logprobs_T=nothing.astype(np.float32), versions_T=nothing,
            text=answer, calls=calls, finish=finish, rule=rule, said="[This answer was stopped.]" if rule else "",
        )  # fmt: skip
        self.calls.append(
            CallToRecord(
                id=f"c{number}", session="s", endpoint="e", arm="stable", version="v", dialect="chat",
                parent=f"c{number - 1}/0" if number else "", ask=ChatRequest(model="e", messages=self._messages),
                choices=(choice,), key="", started_at=at or float(number), finished_at=(at or number) + 0.5,
            )
        )  # fmt: skip
        self._messages = (*self._messages, ChatMessage(role="assistant", text=answer, calls=calls))
        return self

    def signals(self, ending: SessionEnding = IDLE) -> list[Feedback]:
        named, records = {}, []
        for call in self.calls:
            parent = named.get(call.parent)
            records.append(record := make_recorded(call, parent))
            named |= {one.name: one for one in make_answers(record, parent)}
        return signals(EndedSession(id="s", endpoint="e", ending=ending), records)

    def kinds(self, ending: SessionEnding = IDLE) -> list[tuple[str, str]]:
        return [(one.kind, one.call) for one in self.signals(ending)]


QUESTION = "What is the capital of Switzerland?"


def test_feedback_is_about_the_answer_before_and_is_marked_as_implicit() -> None:
    talk = (
        Talk().say(QUESTION, "It is Zurich.").say("No, I meant the capital.", "It is Bern.").say("Thanks!", "Welcome.")
    )
    (found,) = talk.signals()
    assert (found.trajectory, found.source, found.kind, found.value) == ("s", "implicit", "corrected", 0.2)
    assert (found.call, found.data, found.created_at) == ("c0", {"by": "c1"}, 1.0)
    assert talk.signals() == [found], "the same id each time"


def test_a_rewritten_answer_is_kept_as_the_correction() -> None:
    answer = "The capital of Switzerland is Zurich, a city in the north."
    (found,) = Talk().say(QUESTION, answer).say(answer.replace("Zurich", "Bern"), "Right.").signals()
    assert found.data == {"by": "c1", "text": answer.replace("Zurich", "Bern")}


def test_a_question_is_asked_again_across_tools_but_not_after_a_broken_answer() -> None:
    again = Talk().say(QUESTION, "", finish="tool_calls").say("found it", "Zurich.", role="tool").say(QUESTION, "Bern.")
    assert again.kinds() == [("asked_again", "c1")]
    assert Talk().say(QUESTION, "It is", finish="cancelled").say(QUESTION, "It is Bern.").kinds() == []
    assert Talk().say(QUESTION, "It is Bern.").say(QUESTION, "It is Bern.").kinds() == [("asked_again", "c0")]


def test_a_session_that_fell_silent_in_the_middle_was_left() -> None:
    broken = Talk().say(QUESTION, "It is", finish="cancelled")
    assert broken.kinds() == [("left", "c0")]
    assert broken.signals()[0].value == 0.0
    assert broken.kinds(SessionEnding(at=9.0)) == [], "the caller ended it"
    middle = Talk().say("Look.", "", finish="tool_calls").say("x", "", role="tool", finish="tool_calls")
    assert middle.kinds() == [("left", "c1")]


def test_an_end_that_is_usual_is_not_taken_for_leaving() -> None:
    assert Talk().say(QUESTION, "It is Bern.").kinds() == []
    assert Talk().say("Extract the date.", "", finish="tool_calls").kinds() == [], "a call as the answer itself"
    habit = Talk().say(QUESTION, "It is", finish="cancelled").say("And of Austria?", "It is", finish="cancelled")
    assert habit.kinds() == [], "whoever always breaks off means nothing by it"
    assert signals(EndedSession(id="s", endpoint="e", ending=IDLE), []) == []


def test_a_block_of_ours_is_not_the_persons_displeasure() -> None:
    quarantined = Talk().say(QUESTION, "It is", finish="cancelled", rule="blocked")
    assert quarantined.kinds() == []
    beside = Talk().say("Look.", "", finish="tool_calls").say("x", "Bern", role="tool", rule="blocked")
    beside.say("y", "", role="tool", finish="tool_calls")  # a call beside the blocked one: its result is refused
    assert beside.kinds() == []
    replaced = Talk().say(QUESTION, "It is Zurich.", rule="blocked")
    assert replaced.say("That's wrong.", "It is Bern.").kinds() == []
    assert Talk().say(QUESTION, "It is Zurich.", rule="blocked").say(QUESTION, "It is Bern.").kinds() == []


def test_no_text_takes_long_or_breaks_it() -> None:
    rng = random.Random(0)
    for _ in range(30):
        one, other = ("".join(rng.choices("no, I 不meant\n?違", k=rng.randint(0, 6000))) for _ in range(2))
        assert not (asks_again(one, other) and one != other and len(one) < 4)
        corrects(one, other)
        rewrites(one, other)
