"""Forms compiled for a vocabulary, and the place of an answer in its form.

Axis: `B` bytes of a set of ids, one bit for each.
"""

import asyncio
import json
import subprocess
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from loomrl.inference import form_trial
from loomrl.inference.engine import Unsupported
from loomrl.types import Form

KEPT = 64
"""Forms that stay compiled."""
LONGEST = 1 << 19
"""Characters of a form."""
T = TypeVar("T")


class FormMatcher:
    """The place of one answer in its form: which ids may come next."""

    def __init__(self, matcher: LLMatcher, *, end: int, stop: Collection[int]) -> None:
        self._matcher = matcher
        self._end = end
        self._stop = frozenset(id for id in stop if id < end)
        bits: dict[int, int] = {}
        for id in self._stop:
            bits[id >> 3] = bits.get(id >> 3, 0) | 1 << (id & 7)
        self._stop_bytes = np.array(list(bits))
        self._stop_bits = np.array(list(bits.values()), np.uint8)

    def find_allowed(self) -> NDArray[np.uint8]:
        """The ids that may come next, as bits `B`; those that end the answer only where the form may end."""
        allowed_B = np.frombuffer(self._matcher.compute_bitmask(), np.uint8).copy()
        may_end = allowed_B[self._end >> 3] >> (self._end & 7) & 1
        allowed_B[self._stop_bytes] &= ~self._stop_bits
        allowed_B[self._stop_bytes] |= self._stop_bits * may_end
        return allowed_B

    def take(self, id: int) -> str:
        """Go on after an id that was allowed; returns why that is not possible, if it is not."""
        # after a fault llguidance allows the end alone: an answer must not end so
        if id not in self._stop and not self._matcher.is_error():
            self._matcher.consume_token(id)
        return self._matcher.get_error()[:200]


class _RecentForms(Generic[T]):
    """Results for the forms that were used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Form, T] = OrderedDict()

    def get(self, form: Form) -> T | None:
        found = self._kept.get(form)
        if found is not None:
            self._kept.move_to_end(form)
        return found

    def put(self, form: Form, made: T) -> None:
        self._kept[form] = made
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


class FormTrial:
    """Finds out in a process of its own what a form costs and whether it can be obeyed, away from the event loop."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="forms")
        """Where forms are worked on, one after the other."""
        self._tried: _RecentForms[dict[str, str]] = _RecentForms()
        self._process: subprocess.Popen[str] | None = None
        self._end: Callable[[], object] = lambda: None

    async def translate(self, form: Form) -> str:
        """The form in llguidance's Lark; Unsupported if it has a fault, or takes too much to compile."""
        tried = self._tried.get(form)
        if tried is None:
            tried = await asyncio.get_running_loop().run_in_executor(self.thread, self._try, form)
            self._tried.put(form, tried)
        if "fault" in tried:
            raise Unsupported(f"form={form.kind}: {tried['fault'].rstrip('.')}.")
        return tried["grammar"]

    def close(self) -> None:
        """End the process."""
        self.thread.submit(lambda: self._end())
        self.thread.shutdown(wait=False)

    def _try(self, form: Form) -> dict[str, str]:
        if len(form.text) > LONGEST:
            return {"fault": f"{len(form.text)} characters are more than {LONGEST}. Shorten it"}
        process = self._process
        if process is None or process.poll() is not None:
            # -P: the folder of the program has modules of ours by the names of others
            program = [sys.executable, "-P", str(Path(form_trial.__file__))]
            pipe = subprocess.PIPE
            process = subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
            self._process = process
            self._end = weakref.finalize(self, _kill, process)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([form.kind, form.text]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if answer:
            found: dict[str, str] = json.loads(answer)
            return found
        self._end()
        most = f"{1000 * form_trial.CPU_S:.0f} ms or {form_trial.MEMORY >> 30} GiB"
        return {"fault": f"it takes more than {most} to compile. Simplify it"}


def _kill(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


class FormCompiler:
    """Compiles forms for one vocabulary."""

    def __init__(self, spell: Callable[[], Sequence[bytes]]) -> None:
        """`spell` gives the bytes of every id, none for those that no text has. It is called when they are needed."""
        self._spell = spell
        self._trial = FormTrial()
        self._tokenizer: LLTokenizer | None = None
        self._compiled: _RecentForms[LLMatcher] = _RecentForms()

    async def open(self, form: Form, stop: Collection[int]) -> FormMatcher:
        """The beginning of an answer that ends with one of these tokens; Unsupported as in `FormTrial.translate`."""
        matcher = self._compiled.get(form)
        if matcher is None:
            grammar = await self._trial.translate(form)
            loop = asyncio.get_running_loop()
            matcher = await loop.run_in_executor(self._trial.thread, self._compile, grammar)
            if matcher.is_error():
                raise Unsupported(f"form={form.kind}: {matcher.get_error()[:200]}")
            self._compiled.put(form, matcher)
        assert self._tokenizer is not None, "a form was compiled for it"
        return FormMatcher(matcher.deep_copy(), end=self._tokenizer.vocab_size - 1, stop=stop)

    def close(self) -> None:
        """End the process on which forms are tried."""
        self._trial.close()

    def _compile(self, grammar: str) -> LLMatcher:
        if self._tokenizer is None:
            self._tokenizer = form_trial.open_words(self._spell())
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=form_trial.LIMITS)
        matcher.compute_bitmask()  # the first one costs most
        return matcher
