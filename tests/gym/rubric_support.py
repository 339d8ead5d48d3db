"""A server that stands in for a judge's model: real HTTP, and a rule in place of the weights."""

import json
import re
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from loomrl.config.rewards import RubricPart

FENCE = re.compile(r"====[0-9a-f]{24}====")
YES, PARTLY, NO = "yes", "partly", "no"


@dataclass(frozen=True)
class Asked:
    """One request, as a model that follows the form reads it."""

    criteria: tuple[str, ...]
    verdicts: tuple[str, ...]
    said: tuple[tuple[str, str], ...]
    """Roles and texts of the quoted messages."""
    outside: str
    """All that stands outside the quotation."""
    body: dict[str, Any]

    @property
    def answer(self):
        """The last text of the assistant."""
        return [text for role, text in self.said if role == "assistant"][-1]


Rule = Callable[[Asked, str], str]
"""(request, criterion) → verdict."""


class ScriptedJudge(ThreadingHTTPServer):
    """Answers by a rule, after the `faults`, each of which is given once: (status, body)."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, rule):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rule = rule
        self.faults = []
        self.asked = []
        self.most_at_once = self.now = 0
        self.hold = threading.Event()
        """While it is clear, nobody is answered."""
        self.hold.set()
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def read(self, body):
        return read(body)

    def say(self, asked):
        return {name: {"reason": f"Because of {name}.", "verdict": self.rule(asked, name)} for name in asked.criteria}

    def part(self, *criteria, **more):
        """A rubric of this judge."""
        named = [{"name": name, "says": f"The answer is {name}."} for name in criteria or ("kind",)]
        given = {"criteria": named, "judge": {"url": self.url, "model": "m"}}
        return RubricPart.parse(given | more)


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedJudge

    def do_POST(self):
        server = self.server
        asked = server.read(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        with server.lock:
            server.asked.append(asked)
            fault = server.faults.pop(0) if server.faults else None
            server.now += 1
            server.most_at_once = max(server.most_at_once, server.now)
        server.hold.wait(30)
        status, body = fault or (200, completion(json.dumps(server.say(asked))))
        with server.lock:
            server.now -= 1
        try:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # nobody waits any more

    def log_message(self, *_):
        pass


def completion(text, finish="stop"):
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": finish}]}).encode()


def read(body):
    """A request by its form: exactly two fences, and between them lines that are a role or stand behind a mark."""
    system, user = (message["content"] for message in body["messages"])
    (fence,) = set(FENCE.findall(system))
    before, between, after = user.split(f"\n{fence}\n")
    said = []
    for line in between.splitlines():  # whatever a model may take for the end of a line
        if line.startswith("| "):
            said[-1][1].append(line[2:])
        else:
            said.append((line.strip("[]"), []))
    properties = body["response_format"]["json_schema"]["schema"]["properties"]
    verdicts = next(iter(properties.values()))["properties"]["verdict"]["enum"]
    shown = before.partition("The criteria:\n")[2].split("\n")
    assert [line.partition(":")[0] for line in shown if line] == list(properties), "one order in all places"
    assert " | ".join(verdicts) in system
    messages = tuple((role, "\n".join(lines)) for role, lines in said)
    return Asked(tuple(properties), tuple(verdicts), messages, f"{system}\n{before}\n{after}", body)


@contextmanager
def serve_judge(rule, kind=ScriptedJudge):
    """A judge that answers by this rule."""
    with kind(rule) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.hold.set()
            server.shutdown()
            thread.join()


def by_words(words):
    """Yes to a criterion if the last answer has all of its words, partly if one of them."""

    def rule(asked, criterion):
        found = sum(word in asked.answer for word in words[criterion])
        return YES if found == len(words[criterion]) else PARTLY if found else NO

    return rule
