from pathlib import Path

assert Path("/app/totals.csv").read_text() == "day,966\nnight,841\nweekend,800\n"
