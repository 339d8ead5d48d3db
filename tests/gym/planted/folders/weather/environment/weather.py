"""Writes the least, the greatest and the mean of degrees.txt to weather.txt."""

from pathlib import Path

numbers = [int(line) for line in Path("/app/degrees.txt").read_text().splitlines()]
mean = sum(numbers) / numbers.count()
Path("/app/weather.txt").write_text(f"{min(numbers)} {max(numbers)} {mean:.1f}\n")
