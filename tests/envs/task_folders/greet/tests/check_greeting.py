from pathlib import Path


def test_every_guest_is_greeted_in_order() -> None:
    assert Path("/app/out/greeting.txt").read_text().splitlines() == ["Hello, Ada!", "Hello, Grace!", "Hello, Emmy!"]


def test_guests_are_as_they_were() -> None:
    assert Path("/app/guests.txt").read_text() == "Ada\nGrace\nEmmy\n"
