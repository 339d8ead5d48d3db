"""Logs for programs: a JSON object a line on stderr, with the trace that it belongs to. On by LOOMRL_LOG=json."""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

from loomrl.errors import ConfigError
from loomrl.observability.trace import present_trace

VARIABLE = "LOOMRL_LOG"
FORMATS = ("text", "json")
_USUAL = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …, "trace_id": …}`; fields given as `extra` are beside them."""

    def __init__(self) -> None:
        super().__init__()
        self._host = socket.gethostname()
        self._pid = os.getpid()

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "host": self._host,
            "pid": self._pid,
        }
        line |= present_trace()
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_text or record.exc_info:  # the text is there already if it was redacted
            line["exception"] = record.exc_text or self.formatException(record.exc_info or (None, None, None))
        return json.dumps(line, default=str, ensure_ascii=False)


def is_json() -> bool:
    """True if this process and its children log JSON."""
    asked = os.environ.get(VARIABLE, "text")
    if asked not in FORMATS:
        raise ConfigError(f"{VARIABLE}={asked!r:.60}: {' or '.join(FORMATS)} is needed.")
    return asked == "json"


def open_log() -> None:
    """Log as the environment says. Without it Python's own way holds: warnings, as text. Twice is as once."""
    loomrl = logging.getLogger("loomrl")
    if not is_json() or any(isinstance(handler.formatter, JsonFormatter) for handler in loomrl.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    loomrl.addHandler(handler)
    loomrl.setLevel(logging.INFO)
    loomrl.propagate = False


def teller(name: str, prefix: str = "") -> Callable[[str], None]:
    """Tells people what a long command does: lines on stderr, or a JSON log by this name."""
    log = logging.getLogger(f"loomrl.{name}")

    def say(text: str) -> None:
        if is_json():
            log.info("%s", text)
        else:
            print(f"{prefix or time.strftime('%H:%M:%S ')}{text}", file=sys.stderr, flush=True)

    return say
