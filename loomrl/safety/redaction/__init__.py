"""Redaction: text without what must not be stored. Everything here is pure, and linear in the text's length."""

from loomrl.safety.redaction.redactor import NoRedactor, PatternRedactor, Redacted, Redactor, Remembering
from loomrl.safety.redaction.value import Redaction

__all__ = ["NoRedactor", "PatternRedactor", "Redacted", "Redaction", "Redactor", "Remembering"]
