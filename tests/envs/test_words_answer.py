"""Differences that two right answers may have, or not; and translations, which follow the tables."""

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.language.locale import CURRENCIES, DATED, DISTANT, FURTHER, PLAIN, format_day, format_number, name_of
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

    shown = format_number(SAMPLE_NUMBER, locale, "")
    assert parse_decimal(shown, locale=locale, numbering_system="default") == SAMPLE_NUMBER


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
