import re
from pathlib import Path

pattern = re.compile(Path("/app/pattern.txt").read_text().rstrip("\n"))
assert all(pattern.fullmatch(text) for text in ["AB-1234", "QX-0071"])
others = ["AB1234", "A-12"]
assert not any(pattern.fullmatch(text) for text in others)
