"""Writes the least, the greatest and the mean of orders.txt to report.txt."""

from pathlib import Path

numbers = [int(line) for line in Path("/app/orders.txt").read_text().splitlines()]
mean = sum(numbers) / numbers.count()
Path("/app/report.txt").write_text(f"{min(numbers)} {max(numbers)} {mean:.1f}\n")
