"""Stockfish over UCI: one program per process of ours, asked about one position at a time.

A search begins with empty tables and ends after a number of nodes, on one thread, so that the same question has the
same answer. Nothing is waited for without a deadline: a program that is late or dead is killed, the question fails, and
the next one starts another.
"""

import os
import select
import shutil
import subprocess
import time
import weakref
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

from loomrl.errors import ConfigError, EpisodeError

HASH_MB = 4
DEADLINE_S = 10.0
FALLBACK = "/usr/games/stockfish"
"""Debian's and Ubuntu's location, which not every PATH includes."""


class EngineFinding(NamedTuple):
    """A search result, from the view of the player to move."""

    move: str
    """The best move, such as `e7e8q`."""
    mate: int | None
    """Moves to mate; negative if the other side mates."""
    centipawns: int
    """Advantage, if there is no mate."""


class Stockfish:
    """The program, started when it is needed. Threads take turns."""

    def __init__(self, path: str, *, deadline_s: float = DEADLINE_S) -> None:
        self._path = path
        self._deadline_s = deadline_s
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def search(self, game: str, nodes: int) -> EngineFinding:
        """The best move after so many nodes, in the position that a FEN, and `moves` behind it, lead to."""
        with self._lock:
            try:
                return self._search(game, nodes)
            except OSError as error:
                self._end()
                raise EpisodeError(f"{self._path}: {error} about {game!r}.") from error

    def _search(self, game: str, nodes: int) -> EngineFinding:
        if self._process is None or self._process.poll() is not None:
            self._start()
        deadline = time.monotonic() + self._deadline_s
        # empty tables: the answer must not depend on earlier questions
        self._say("ucinewgame", f"position fen {game}", f"go nodes {nodes}")
        score = ["cp", "0"]
        while True:
            words = self._line(deadline).split()
            if words[:1] == ["bestmove"]:
                number = int(score[1])
                return EngineFinding(
                    words[1], number if score[0] == "mate" else None, number if score[0] == "cp" else 0
                )
            if words[:1] == ["info"] and "score" in words and "upperbound" not in words and "lowerbound" not in words:
                place = words.index("score")
                score = words[place + 1 : place + 3]

    def _start(self) -> None:
        self._end()
        self._process = subprocess.Popen(
            [self._path], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        weakref.finalize(self, _kill, self._process)
        deadline = time.monotonic() + self._deadline_s
        self._say("uci", "setoption name Threads value 1", f"setoption name Hash value {HASH_MB}", "isready")
        while self._line(deadline) != "readyok":
            pass

    def _end(self) -> None:
        if self._process is not None:
            _kill(self._process)
        self._process = None
        self._unread = b""

    def _say(self, *lines: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def _line(self, deadline: float) -> str:
        """The next line; an OSError if it does not come in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer within {self._deadline_s:g} s")
            more = os.read(pipe, 65536)
            if not more:
                raise BrokenPipeError("it has ended")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace").strip()


def find_stockfish(path: str | None) -> str | None:
    """The program at `path`, or at a usual location; None if there is none."""
    return shutil.which(path or "stockfish") or (shutil.which(FALLBACK) if path is None else None)


@lru_cache(maxsize=8)
def open_stockfish(path: str | None) -> Stockfish:
    """The only Stockfish of this process, at `path` or a usual location."""
    found = find_stockfish(path)
    if found is None:
        raise ConfigError(
            f"stockfish={path!r}: no such program. Chess needs it: apt-get install stockfish, or name its path."
        )
    return Stockfish(found)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
