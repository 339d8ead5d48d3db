"""The preference of a request, put where the policy reads it."""

from dataclasses import replace

from loomrl.errors import ConfigError
from loomrl.gym.preference import asked, line
from loomrl.serving.call import Ask, Said
from loomrl.serving.policy import About
from loomrl.serving.refusal import Cause, Refusal


def preferred(ask: Ask, about: About) -> Ask:
    """The conversation with its preference, as in training; without one all objectives count alike."""
    if not about.weighs:
        if ask.preference is not None:
            raise Refusal(Cause.INVALID, "This policy reads no preference: leave it out.", where="preference")
        return ask
    if ask.prompt is not None:
        return ask  # whoever gives a bare prompt says all that the policy reads
    even = dict.fromkeys(about.weighs, 1 / len(about.weighs))
    try:
        told = line(even if ask.preference is None else asked(ask.preference, about.weighs))
    except ConfigError as error:
        raise Refusal(Cause.INVALID, str(error), where="preference") from None
    first = ask.messages[0]
    if first.role != "system":
        return replace(ask, messages=(Said(role="system", text=told), *ask.messages))
    return replace(ask, messages=(replace(first, text=f"{first.text}\n{told}"), *ask.messages[1:]))
