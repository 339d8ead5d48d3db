"""What redaction finds in forms that were held out, and what it leaves alone."""

import pytest

from tests.safety.heldout import benign, clean_code, clean_text, hostile, key, later, password, person, said
from tests.safety.measure import Recall, altered, cleans, ms_per_kb, recalls
from tests.safety.tuned import benign as tuned_benign
from tests.safety.tuned import clean

EACH, FEW = 8, 4
LEAST = 0.95


@pytest.fixture(scope="module")
def held_out() -> dict[str, Recall]:
    return recalls((key, password, person), FEW)


def test_nineteen_of_twenty_secrets_of_every_class_are_found(held_out: dict[str, Recall]) -> None:
    assert {name: one.missed for name, one in held_out.items() if one.share < LEAST} == {}


def test_forms_that_were_written_later_are_found_as_well() -> None:
    found = recalls((later,), FEW)
    assert sum(one.gone for one in found.values()) > LEAST * sum(one.count for one in found.values())
    assert {name: one.missed for name, one in found.items() if one.share < 0.9} == {}


@pytest.mark.parametrize("texts", [clean_code.CODE, clean_text.TEXT, clean.TEXTS], ids=["code", "prose", "tuned"])
def test_clean_documents_stay(texts: dict[str, str]) -> None:
    assert len(altered(texts, EACH)) <= 0.02 * len(texts) * EACH


def test_a_kilobyte_takes_about_a_millisecond() -> None:
    """0.8 on a machine at rest; a busy one is given three times as much."""
    texts = {**clean_code.CODE, **clean_text.TEXT}
    assert ms_per_kb([text for _, text in cleans(texts, 4)]) < 3


MISSED = {"syntax", "email_disguised", "two_messages"}
"""Classes of what is disguised or said of which more than a twentieth is missed; the figures are in the document."""


@pytest.fixture(scope="module")
def disguised() -> dict[str, Recall]:
    return recalls((hostile, said), FEW)


def test_what_is_disguised_is_found(disguised: dict[str, Recall]) -> None:
    low = {name for name, one in disguised.items() if one.share < LEAST and not name.startswith("said")}
    assert low <= MISSED
    assert all(one.share > 0.8 for one in disguised.values())


def test_passwords_said_in_thirty_languages_are_found(disguised: dict[str, Recall]) -> None:
    told = [one for name, one in disguised.items() if name.startswith("said")]
    assert sum(one.gone for one in told) > 0.9 * sum(one.count for one in told)


@pytest.mark.parametrize("texts", [benign.TEXTS, tuned_benign.TEXTS], ids=["held out", "tuned"])
def test_lines_in_which_nothing_is_secret_stay(texts: dict[str, str]) -> None:
    assert len(altered(texts, EACH)) < 0.01 * len(texts) * EACH
