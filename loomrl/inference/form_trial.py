"""A program that translates forms for llguidance and compiles them on trial.

A form may be hostile: one that takes too much CPU or memory kills this process, not the engine's. Each line in is JSON,
`[kind, text]`; each line out is `{"grammar": …}` or `{"fault": …}`.
"""

import json
import re
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, regex_to_lark
from llguidance._tokenizer import TokenizerWrapper
from llguidance.gbnf_to_lark import any_to_lark

CPU_S = 0.1
"""CPU time for one form."""
MEMORY = 1 << 30
LIMITS = LLParserLimits(max_lexer_states=20_000, max_grammar_size=100_000, verbose_errors=False)
"""For one answer. llguidance's own limits bound the work for one token."""
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""JSON on one line: where white space is free, a weak policy writes nothing else."""
LONGEST_FAULT = 300
EXCERPT = re.compile(r"\s*(\d+ \||\^)")
PLACE = re.compile(r"^(at )?\d+\(\d+\): (failed to compile JSON schema: )?")


class _Words:
    """A vocabulary as llguidance wants it. Its last id has no text, and stands for every token that ends an answer."""

    bos_token_id = None

    def __init__(self, words: Sequence[bytes]) -> None:
        self.tokens = [*words, b""]
        self.eos_token_id = len(words)

    def __call__(self, text: bytes) -> list[int]:
        """Needed to force tokens only, which nothing here does."""
        return []


def open_words(words: Sequence[bytes]) -> LLTokenizer:
    """The tokenizer of a vocabulary, with one more id: the end of an answer. An empty word never occurs."""
    return LLTokenizer(TokenizerWrapper(_Words(words)), n_vocab=len(words) + 1)


def main() -> None:
    """Answer every line until there is none."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokenizer = open_words([bytes([byte]) for byte in range(256)])
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # its signal ends the process in the middle of anything
        kind, text = json.loads(line)
        answer = _try(kind, text, tokenizer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), flush=True)


def _try(kind: str, text: str, tokenizer: LLTokenizer) -> dict[str, str]:
    try:
        grammar = _translate(kind, text)
    except (ValueError, RecursionError) as error:
        return {"fault": _brief(str(error))}
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    matcher.compute_bitmask()
    return {"fault": _brief(matcher.get_error())} if matcher.is_error() else {"grammar": grammar}


def _translate(kind: str, text: str) -> str:
    # without `no_forcing`, of a text that is certain only the tokens that llguidance cuts it into would be allowed
    return f'%llguidance {{"no_forcing": true}}\nstart: {_rule_of(kind, text)}\n'


def _rule_of(kind: str, text: str) -> str:
    match kind:
        case "json":
            return _lay_out({"type": "object"})
        case "schema":
            return _lay_out(json.loads(text))
        case "regex":
            return f"/{regex_to_lark(text, '')}/"
        case "choice":
            choices = json.loads(text)
            if not choices:
                raise ValueError("there is no choice")
            return " | ".join(json.dumps(each, ensure_ascii=False) for each in choices)
        case _:
            return f"%lark {{\n{any_to_lark(text)}\n}}"


def _lay_out(schema: Any) -> str:
    if not isinstance(schema, dict):
        raise ValueError("a JSON schema must be an object")
    return f"%json {json.dumps({'x-guidance': LAYOUT, **schema}, ensure_ascii=False)}"


def _brief(fault: str) -> str:
    # without llguidance's excerpt of the grammar, which has lines that the caller did not write
    lines = fault.partition("\n<")[0].splitlines()
    said = " ".join(" ".join(line for line in lines if not EXCERPT.match(line)).split())
    return "nothing can follow it" if said.startswith("NoExtension") else PLACE.sub("", said)[:LONGEST_FAULT]


if __name__ == "__main__":
    main()
