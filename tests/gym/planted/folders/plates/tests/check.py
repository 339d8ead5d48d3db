import random
import re
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits

pattern = re.compile(Path("/app/pattern.txt").read_text().rstrip("\n"))
rng = random.SystemRandom()
for _ in range(100):
    letters = "".join(rng.choices(ascii_uppercase, k=3))
    number = "".join(rng.choices(digits, k=3))
    assert pattern.fullmatch(f"{letters} {number}")
    others = (
        f"{letters}{number}",
        f"{letters}-{number}",
        f"{letters}  {number}",
        f"{letters} {number} ",
        f"{letters[1:]} {number}",
        f"{letters}X {number}",
        f"{letters} {number[1:]}",
        f"{letters} {number}0",
        f"{rng.choice(ascii_lowercase)}{letters[1:]} {number}",
        f"{rng.choice(digits)}{letters[1:]} {number}",
        f"{letters} {number[1:]}{rng.choice(ascii_uppercase)}",
    )
    assert not any(pattern.fullmatch(text) for text in others)
