"""The checkpoints of one run, by number. A checkpoint counts once it is stored completely."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from loomrl.artifacts import MARKER, Artifacts
from loomrl.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Folders of a run among the artifacts."""

    artifacts: Artifacts
    run: str

    def put(self, number: int, folder: Path) -> None:
        """Store a checkpoint."""
        self.artifacts.put_folder(self._name(number), folder)

    def get(self, number: int, into: Path) -> Path:
        """Copy it into this folder."""
        return self.artifacts.get_folder(self._name(number), into)

    def delete(self, number: int) -> None:
        """Delete it."""
        self.artifacts.delete(self._name(number))

    def prune(self, keep: Collection[int]) -> None:
        """Delete all others. The first one is kept too, as the baseline of comparisons."""
        for number in self.numbers():
            if number != 0 and number not in keep:
                self.delete(number)

    def numbers(self) -> list[int]:
        """The stored numbers, in order."""
        names = self.artifacts.list_names(f"runs/{self.run}")
        return sorted(int(last) for name in names if (last := name.rpartition("/")[2]).isdecimal())

    def refuse_lost(self, newest: int) -> None:
        """An ArtifactError if version `newest` is recorded but neither it nor a later one is stored."""
        stored = self.numbers()
        if newest > max(stored, default=-1):
            there = f"the latest complete one is {stored[-1]}" if stored else "there is none"
            raise ArtifactError(
                f"run {self.run!r} is on record up to version {newest}, but its checkpoint {self._name(newest)!r} is "
                f"not in {self.artifacts.url}, or lacks its {MARKER}: {there}. Put it back, or train under a new --run."
            )

    def url(self, number: int) -> str:
        """Its path below `artifact_url`, so that a moved folder is still found."""
        return self._name(number)

    def _name(self, number: int) -> str:
        return f"runs/{self.run}/{number:06d}"
