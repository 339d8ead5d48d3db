"""Loggers whose lines are redacted: for modules in which a caller's text can get into a line."""

import logging

from loomrl.safety.redaction.redactor import PatternRedactor

_FORMATTER = logging.Formatter()


class Redacting(logging.Filter):
    """Redacts the message of every line, and the traceback under it."""

    def __init__(self) -> None:
        super().__init__()
        self._redact = PatternRedactor().redact

    def filter(self, record: logging.LogRecord) -> bool:
        """True: no line is left out. Handlers see it without its arguments, which may hold what was found."""
        message = record.getMessage()
        if (clean := self._redact(message).text) != message:
            record.msg = clean
            record.args = ()
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = self._redact(_FORMATTER.formatException(record.exc_info)).text
            record.exc_info = None
        return True


_REDACTING = Redacting()


def redacted_logger(name: str) -> logging.Logger:
    """The logger of this name; lines that are logged with it are redacted."""
    logger = logging.getLogger(name)
    logger.addFilter(_REDACTING)  # once: a second time changes nothing
    return logger
