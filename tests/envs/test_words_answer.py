"""Differences that two right answers may have; translations; facts that a summary recalls or invents."""

import re
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.language.locale import CURRENCIES, DATED, DISTANT, FURTHER, PLAIN, format_day, format_number, name_of
from loomrl.envs.language.statement import count_words, read
from loomrl.envs.language.summary import summary
from loomrl.envs.language.tongue import ORDERS, Clause, Phrase, english, same_english, same_foreign, translation
from loomrl.envs.language.wording import same_date, same_name, same_number, same_text


@pytest.mark.parametrize("given_", ["Oslo", "oslo", " OSLO. ", "**Oslo**", '"Oslo"', "the Oslo", "Os\u200blo"])
def test_one_name_may_be_written_in_many_ways(given_):
    assert same_name(given_, "Oslo")


@pytest.mark.parametrize(
    "given_", ["", "Rome", "Oslo or Rome", "Oslo Rome", "not Oslo", "Oslo Oslo", "Оslo", "the", "Oslo" + " " * 5000]
)
def test_another_name_or_more_than_one_is_wrong(given_):
    assert not same_name(given_, "Oslo")


@pytest.mark.parametrize("given_", ["21", "twenty-one", "21 people", "Twenty-One years.", "021"])
def test_one_number_may_be_written_in_many_ways(given_):
    assert same_number(given_, "21")


@pytest.mark.parametrize(
    "given_", ["", "20", "21 or 22", "twenty", "²¹", "21.5", "1e1", "21 cats", "-21", "9" * 5000, "21 21"]
)
def test_another_number_is_wrong(given_):
    assert not same_number(given_, "21")


@pytest.mark.parametrize("given_", ["1 234,50 €", "1\u202f234,50\u00a0€", "`1\u2009234,50 €`", "\u200e1 234,50 €"])
def test_kinds_of_space_and_invisible_marks_do_not_matter(given_):
    assert same_text(given_, "1\u202f234,50\u00a0€")


@pytest.mark.parametrize(
    "given_", ["1.234,50 €", "1234,50 €", "1 234,5 €", "1 234.50 €", "1 234,50", "€1 234,50", "2 234,50 €"]
)
def test_signs_and_digits_do(given_):
    assert not same_text(given_, "1\u202f234,50\u00a0€")


def test_zeros_before_days_and_months_do_not_matter_others_do():
    assert same_date("5.3.2010", "05.03.2010")
    assert same_date("2010-03-05", "2010-3-5")
    assert not same_date("5.3.2010", "50.30.2010")
    assert not same_date("5.3.201", "5.3.2010")


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_texts_are_compared_without_trouble(first, second):
    for same in (same_name, same_text, same_date, same_foreign):
        assert same(first, second) == same(second, first)
    same_number(first, "7")
    same_english(first, second)


@pytest.mark.parametrize("piece", ["a", "e\u0301\u0323\u0302", "\ufdfa", " ", "0", "the ", "\u202e"])
def test_long_texts_cost_little(piece):
    started = time.process_time()
    for same in (same_name, same_text, same_date, same_foreign):
        same(piece * 100_000, "Oslo")
    assert time.process_time() - started < 0.2


@pytest.mark.parametrize("locale", [*PLAIN, *FURTHER, *DISTANT])
def test_numbers_can_be_read_back_by_babels_own_reader(locale):
    from babel.numbers import parse_decimal

    from loomrl.envs.language.locale import SAMPLE_NUMBER

    show_task = format_number(SAMPLE_NUMBER, locale, "")
    assert parse_decimal(show_task, locale=locale, numbering_system="default") == SAMPLE_NUMBER


def test_amounts_lose_nothing_where_they_are_shown():
    from babel.numbers import get_currency_precision

    assert {get_currency_precision(currency) for currency in CURRENCIES} == {2}


def test_locales_have_names_and_dates_of_their_own():
    from loomrl.envs.language.locale import SAMPLE_DATE

    names = {name_of(locale) for locale in (*PLAIN, *FURTHER, *DISTANT, *DATED)}
    assert len(names) == len({*PLAIN, *FURTHER, *DISTANT, *DATED})
    assert format_day(SAMPLE_DATE, "de_DE", "full") == "Freitag, 31. Dezember 1999"


def test_english_is_the_same_where_only_articles_and_agreement_differ():
    clause = Clause(Phrase("dog", ("small",), plural=True), "help", Phrase("cat"), past=False, negated=True)
    assert english(clause) == "the small dogs do not help the cat"
    for text in (
        "Small dogs don't help a cat.",
        "the small dogs does not help the cat",
        "The small dogs do not help the cat!",
    ):
        assert same_english(text, english(clause))
    for text in (
        "the small dogs help the cat",
        "the small dog does not help the cat",
        "the cat does not help the small dogs",
        "the small dogs did not help the cat",
        "the dogs do not help the small cat",
        "the small dogs do not help the cats",
    ):
        assert not same_english(text, english(clause))


@pytest.mark.parametrize("level", range(1, 11))
def test_word_by_word_in_english_order_is_never_the_translation(level):
    assert "SVO" not in ORDERS
    for seed in range(20):
        problem = translation(level, Random(seed))
        lines = problem.prompt.splitlines()
        pairs = [pair.split(" = ") for pair in lines[0].removeprefix("Dictionary: ").removesuffix(".").split(", ")]
        asked = lines[-1].partition(": ")[2]
        both = dict(pairs) | {foreign: native for native, foreign in pairs}
        naive = " ".join(
            both.get(word, both.get(word.removesuffix("s"), word)) for word in asked.split() if word != "the"
        )
        assert problem.grade(naive).success == 0
        assert problem.grade(problem.answer).success == 1
        assert all(problem.grade(guess).success == 0 for guess in problem.guesses)


PEOPLE = ("Ada", "Ben", "Cleo")


def show_task(statement):
    """`Ada not Oslo @1999`"""
    since = "" if statement.since is None else f" @{statement.since}"
    return f"{statement.who}{'' if statement.positive else ' not'} {statement.value}{since}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ada lives in Oslo.", "Ada Oslo"),
        ("ada LIVES in oslo", "Ada Oslo"),
        ("Ada does not live in Oslo.", "Ada not Oslo"),
        ("Ada doesn’t live in Oslo.", "Ada not Oslo"),
        ("Ada is not a baker.", "Ada not baker"),
        ("Ada is a baker since 1999.", "Ada baker @1999"),
        ("Ada has lived in Oslo since 1999.", "Ada Oslo @1999"),
        ("Ada plays for the Hawks; Ben works as a nurse", "Ada Hawks, Ben nurse"),
        ("- Ada lives in Oslo\n- Ben lives in Rome", "Ada Oslo, Ben Rome"),
        ("Ada and Ben live in Oslo.", "Ada Oslo, Ben Oslo"),
        ("Ada, Ben and Cleo do not keep a cat.", "Ada not cat, Ben not cat, Cleo not cat"),
        ("Ada lives in Oslo and works as a baker, and Ben lives in Rome.", "Ada Oslo, Ada baker, Ben Rome"),
        ("Ada lives in Oslo. She keeps a cat.", "Ada Oslo, Ada cat"),
    ],
)
def test_simple_sentences_say_what_they_say(text, said):
    reading = read(text, PEOPLE)
    assert (", ".join(map(show_task, reading.statements)), reading.unread) == (said, 0)
    assert reading.words == count_words(text)


@pytest.mark.parametrize(
    "text",
    [
        "It is not true that Ada lives in Oslo.",
        "Ada never lives in Oslo.",
        "Ada lives in Oslo, or so they say.",
        "Ada or Ben lives in Oslo.",
        "Ada lives in Oslo or Rome.",
        "Ada lives in Oslo Rome Paris.",
        "Ada may live in Oslo.",
        "Ada lived in Oslo.",
        "If Ada lives in Oslo, Ben lives in Rome.",
        "Dirk lives in Oslo.",
        "She lives in Oslo.",
        "Ada lives in Atlantis.",
        "Ada lives in Oslo since yesterday.",
        "Ada has lived in Oslo.",
        "Аda lives in Oslo.",  # a Cyrillic letter
        "reward 1",
    ],
)
def test_any_other_sentence_is_not_understood(text):
    reading = read(text, PEOPLE)
    assert reading.unread >= 1
    assert reading.statements == ()


def grade_of(level=4, seed=3):
    return summary(level, Random(f"{level} {seed}"))


@pytest.mark.parametrize("level", range(1, 11))
def test_all_facts_that_matter_are_full_success(level):
    problem = grade_of(level)
    assert problem.grade(problem.answer)[:2] == (1.0, 1.0)


@pytest.mark.parametrize("level", [1, 4, 7, 10])
def test_a_denied_fact_is_worth_nothing(level):
    problem = grade_of(level)
    denied = problem.answer.replace(" lives", " does not live").replace(" and works", " and does not work")
    assert denied != problem.answer
    assert problem.grade(denied).success == 0


def test_what_is_said_and_denied_cancels_out():
    problem = grade_of(1)
    first = problem.answer.split(".")[0]
    both = f"{first}. {first.replace('lives', 'does not live')}."
    assert problem.grade(both).success == 0


def test_each_invented_or_garbled_fact_costs_as_much_as_one_recalled_earns():
    problem = grade_of(10)
    sentences = problem.answer.removesuffix(".").split(". ")
    missing = problem.grade(". ".join(sentences[:-1])).success
    garbled = problem.grade(". ".join([*sentences[:-1], "Nobody knows where"])).success
    assert 1 > missing > garbled > 0


def test_half_of_the_facts_earn_nothing():
    problem = grade_of(10)
    sentences = problem.answer.removesuffix(".").split(". ")
    assert problem.grade(". ".join(sentences[: len(sentences) // 2])).success == 0


def test_the_whole_text_is_too_long_a_summary():
    for level in range(1, 11):
        problem = grade_of(level)
        assert problem.grade(problem.prompt.split("\n\n")[0]).success == 0


def test_words_are_counted_whatever_joins_them():
    assert count_words("Ada lives in Oslo.") == 4
    assert count_words("Ada-lives/in_Oslo.Ben,lives;in:Rome") == 8


def test_years_are_detail_and_wrong_years_are_invented():
    problem = grade_of(5)
    dated = problem.grade(problem.answer)
    undated = problem.grade(re.sub(r" since \d+", "", problem.answer))
    assert (dated.success, dated.detail) == (1.0, 1.0)
    assert (undated.success, undated.detail) == (1.0, 0.0)
    year = next(word.strip(".") for word in problem.answer.split() if word.strip(".").isdecimal())
    assert problem.grade(problem.answer.replace(f"since {year}", "since 1900", 1)).success < 1


def test_saying_a_thing_twice_is_not_coherent_and_neither_is_jumping_about():
    problem = grade_of(6)
    twos = [sentence.split(" and ") for sentence in re.sub(r" since \d+", "", problem.answer)[:-1].split(". ")]
    homes = [two[0] for two in twos]
    jobs = [f"{two[0].split()[0]} {two[1]}" for two in twos]
    assert problem.grade(". ".join(homes + jobs)).coherence == 1
    jumping = [*homes[:1], *jobs[1:], *homes[1:], *jobs[:1]]
    assert problem.grade(". ".join(jumping))[:2] == (1.0, 0.0)
    assert problem.grade(". ".join([*homes, *jobs, homes[0]])).coherence == 0


WORDS = "Ada Ben lives in Oslo Rome and , . not does she is a baker since 1999 works as or"


@given(st.lists(st.sampled_from(WORDS.split()), max_size=40))
def test_any_words_are_read_without_trouble(words):
    reading = read(" ".join(words), PEOPLE)
    assert all(statement.who in PEOPLE for statement in reading.statements)


@pytest.mark.parametrize("piece", ["Ada, ", "Ada lives in Oslo and ", "and ", "she ", ".", "Ada lives in Oslo. "])
def test_long_texts_are_read_in_bounded_time(piece):
    started = time.process_time()
    read(piece * (200_000 // len(piece)), PEOPLE)
    assert time.process_time() - started < 0.3
