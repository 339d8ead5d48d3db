"""Preferences in a model's folder: the objectives that it weighs, or one preference that always holds."""

import json
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from loomrl.errors import ConfigError
from loomrl.gym.preference import Preference, line, parse_weights
from loomrl.inference.experts import SETTING

OBJECTIVES = "loomrl_objectives"
"""Names of the objectives of a policy that reads a preference, in the configuration of its tokenizer."""


def objectives_of(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """The objectives that a policy with this tokenizer weighs; none if it reads no preference."""
    return tuple(tokenizer.init_kwargs.get(OBJECTIVES) or ())


def name_objectives(tokenizer: PreTrainedTokenizerBase, objectives: Sequence[str]) -> None:
    """Have the tokenizer's folder name these objectives."""
    if objectives:
        tokenizer.init_kwargs[OBJECTIVES] = list(objectives)


def fix_preference(folder: Path, preference: Preference) -> None:
    """Make a steerable policy's folder an ordinary one, whose chat template always has this preference."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    objectives = settings.pop(OBJECTIVES, None)
    if objectives is None:
        raise ConfigError(f"preference={dict(preference)}: this policy reads no preference, leave it out.")
    if SETTING in json.loads((folder / "config.json").read_text()):
        raise ConfigError(
            "--preference: this policy has several experts, and a mixture of distributions is none that an ordinary "
            "model has. Serve it as it is, by the torch engine, or train with algorithm.experts=1."
        )
    template = folder / "chat_template.jinja"
    apart = template.exists()
    given = template.read_text() if apart else settings["chat_template"]
    always = _always(line(parse_weights(preference, objectives))) + given
    if apart:
        template.write_text(always)
    else:
        settings["chat_template"] = always
    file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def _always(said: str) -> str:
    """The beginning of a chat template that puts a line into the system message, as `gym.preference.shown` does."""
    text = json.dumps(said)
    return (
        "{%- if messages and messages[0].role == 'system' -%}"
        "{%- set first = {'role': 'system', 'content': messages[0].content ~ '\\n' ~ " + text + "} -%}"
        "{%- set messages = [first] + messages[1:] -%}{%- else -%}"
        "{%- set messages = [{'role': 'system', 'content': " + text + "}] + messages -%}{%- endif -%}"
    )
