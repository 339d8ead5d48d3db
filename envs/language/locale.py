"""Numbers, money and dates from one locale's way of writing into another's, by the tables of Babel (CLDR)."""

import datetime
from decimal import Decimal
from functools import lru_cache
from random import Random
from types import ModuleType
from typing import Literal

from loomrl.envs.language.problem import LanguageProblem, exact
from loomrl.envs.language.wording import plain, same_date, same_text
from loomrl.errors import ConfigError
from loomrl.gym.generate import between, words

DateForm = Literal["short", "long", "full"]
FIRST_DATE = datetime.date(1970, 1, 1)
"""55 years, among which two digits identify a year."""
SAMPLE_NUMBER = Decimal("9876543.2")
SAMPLE_DATE = datetime.date(1999, 12, 31)
PLAIN = words("en_US de_DE fr_FR sv_SE pt_BR it_IT es_ES nl_NL da_DK")
FURTHER = words("pl_PL de_CH en_IN fi_FI nb_NO id_ID hi_IN cs_CZ ro_RO hu_HU tr_TR vi_VN")
DISTANT = words("ar_EG fa_IR bn_BD mr_IN ne_NP my_MM")
"""With digits of their own."""
DATED = words("ja_JP ko_KR zh_CN ru_RU uk_UA el_GR lt_LT lv_LV eu_ES is_IS et_EE ca_ES")
CURRENCIES = words("EUR USD GBP CAD CHF INR SEK")
"""All with two decimals."""
MONEY_FROM = 4
SUM_FROM = 8
LATER_FROM = 8


def number(level: int, rng: Random) -> LanguageProblem:
    """A number, an amount of money, or a sum of some, as another locale writes it."""
    near = PLAIN if level < 3 else PLAIN + FURTHER
    currency = rng.choice(CURRENCIES) if level >= MONEY_FROM else ""
    values = [_number(level, rng) for _ in range(between(level, 1, 4) if level >= SUM_FROM else 1)]
    while True:
        sources = [rng.choice(near) if level > 2 else "en_US" for _ in values]
        target = rng.choice(DISTANT if level >= 7 else near)
        shown = [format_number(value, source, currency) for value, source in zip(values, sources, strict=True)]
        truth = format_number(sum(values, Decimal(0)), target, currency)
        if all(plain(one) != plain(truth) for one in shown):
            break
    given = " and ".join(f"{one} ({name_of(source)})" for one, source in zip(shown, sources, strict=True))
    sample, english = (format_number(SAMPLE_NUMBER, place, currency) for place in (target, "en_US"))
    asked = f"Write {given}" if len(values) == 1 else f"Add up {given}, and write the sum"
    prompt = f"{asked} as in {name_of(target)}, where {english} is {sample}."
    guesses = tuple(format_number(_number(level, rng), target, currency) for _ in range(3))
    return LanguageProblem(prompt, truth, exact(same_text, truth), guesses, f"The number is {sum(values, Decimal(0))}.")


def date(level: int, rng: Random) -> LanguageProblem:
    """A date, or one that is some days away from it, as another locale writes it."""
    form: DateForm = "short" if level < 3 else "long" if level < 6 else "full"
    near = PLAIN if level < 5 else PLAIN + FURTHER if level < 9 else FURTHER + DATED + DISTANT
    later = rng.randint(2, 400) if level >= LATER_FROM else 0
    day = FIRST_DATE + datetime.timedelta(days=rng.randrange(55 * 365))
    while True:
        source = rng.choice(near)
        target = rng.choice(near)
        shown = day.isoformat() if level < 3 else format_day(day, source, "short" if level < 5 else "long")
        truth = format_day(day + datetime.timedelta(days=later), target, form)
        if plain(shown) != plain(truth):
            break
    origin = "" if level < 3 else f" ({name_of(source)})"
    asked = f"the day {later} days after {shown}{origin}" if later else f"{shown}{origin}"
    sample = format_day(SAMPLE_DATE, target, form)
    prompt = f"Write {asked} as in {name_of(target)}, where 1999-12-31 is: {sample}"
    guesses = tuple(format_day(day + datetime.timedelta(days=rng.randint(401, 9999)), target, form) for _ in range(3))
    return LanguageProblem(
        prompt, truth, exact(same_date, truth), guesses, f"It is {day + datetime.timedelta(days=later)}."
    )


def _number(level: int, rng: Random) -> Decimal:
    digits = between(level, 4, 9)
    return Decimal(rng.randint(10 ** (digits - 1), 10**digits - 1)) + Decimal(rng.randint(1, 99)) / 100


def format_number(value: Decimal, locale: str, currency: str) -> str:
    """`value` as this locale writes it, with its own digits; an amount of money where a currency is given."""
    numbers = _babel().numbers
    if currency:
        return str(numbers.format_currency(value, currency, locale=locale, numbering_system="default"))
    return str(numbers.format_decimal(value, locale=locale, numbering_system="default"))


def format_day(day: datetime.date, locale: str, form: DateForm) -> str:
    """`day` as this locale writes it."""
    return str(_babel().dates.format_date(day, form, locale=locale))


@lru_cache(maxsize=128)
def name_of(locale: str) -> str:
    """`German (Germany)`"""
    return str(_babel().Locale.parse(locale).get_display_name("en"))


def _babel() -> ModuleType:
    try:
        import babel.dates
        import babel.numbers
    except ImportError:
        raise ConfigError("Language translates numbers and dates with Babel: pip install 'babel>=2.18,<3'.") from None
    return babel
