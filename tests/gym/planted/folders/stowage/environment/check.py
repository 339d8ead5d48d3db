"""Checks /app/plan.txt."""

from pathlib import Path

weights = [31, 29, 18, 42, 22, 38, 12, 48]
lines = Path("/app/plan.txt").read_text().strip().splitlines()
trips = [[int(word) for word in line.split()] for line in lines]
assert sorted(each for trip in trips for each in trip) == list(range(1, 9)), "every one of the crates goes once"
assert len(trips) <= 4, "four trips at most"
assert all(sum(weights[each - 1] for each in trip) <= 60 for trip in trips), "a trip is too heavy"
