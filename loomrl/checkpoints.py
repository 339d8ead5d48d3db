"""The checkpoints of one run, by number. A checkpoint counts once it is stored completely."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from loomrl.artifacts import MARKER, Artifacts
from loomrl.errors import ArtifactError

_LAST = re.compile(r"(\d+)(?:\.(\d+))?")


def number_of(url: str) -> int:
    """The number of the checkpoint of this name; -1 if it is another artifact."""
    last = _LAST.fullmatch(url.rpartition("/")[2])
    return -1 if last is None else int(last[1])


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Folders of a run among the artifacts, each named by its path below `artifact_url`.

    Every process that resumes the run writes under names of its own (`000007.2`), so that one that was given up for
    dead, and is not, never touches another's.
    """

    artifacts: Artifacts
    run: str
    times: int = 1
    """How often the run was started or resumed."""

    def put(self, number: int, folder: Path) -> None:
        """Store a checkpoint."""
        self.artifacts.put_folder(self.url(number), folder)

    def get(self, url: str, into: Path) -> Path:
        """Copy it into this folder."""
        return self.artifacts.get_folder(url, into)

    def delete(self, url: str) -> None:
        """Delete it."""
        self.artifacts.delete(url)

    def prune(self, keep: Collection[int]) -> None:
        """Delete what is older than the newest of these numbers and none of them.

        The first one is kept too, as the baseline of comparisons.
        """
        for number, url in self.stored():
            if number != 0 and number not in keep and number < max(keep):
                self.delete(url)

    def stored(self) -> list[tuple[int, str]]:
        """Number and URL of all, the oldest first; of one number, in the order of their writers."""
        found = []
        for url in self.artifacts.list_names(f"runs/{self.run}"):
            last = _LAST.fullmatch(url.rpartition("/")[2])
            if last is not None:
                found.append((int(last[1]), int(last[2] or 1), url))
        return [(number, url) for number, _, url in sorted(found)]

    def numbers(self) -> list[int]:
        """The stored numbers, in order."""
        return list(dict.fromkeys(number for number, _ in self.stored()))

    def lost(self, newest: int, url: str) -> ArtifactError:
        """The error of a run whose newest recorded version is not stored, nor a later one."""
        stored = self.numbers()
        there = f"the latest complete one is {stored[-1]}" if stored else "there is none"
        return ArtifactError(
            f"run {self.run!r} is on record up to version {newest}, but its checkpoint {url!r} is "
            f"not in {self.artifacts.url}, or lacks its {MARKER}: {there}. Put it back, or train under a new --run."
        )

    def url(self, number: int) -> str:
        """The path of one of ours below `artifact_url`, so that a moved folder is still found."""
        return f"runs/{self.run}/{number:06d}" + (f".{self.times}" if self.times > 1 else "")
