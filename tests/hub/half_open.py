"""Clients that begin a request and never finish it, in a process of their own: `half_open.py PORT COUNT`.

Says when so many connections are open; those that the server closes are opened again every few seconds. At the end of
its input it says how many those were.
"""

import resource
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HEAD = b"POST /v2/append HTTP/1.1\r\nHost: 127.0.0.1\r\n"
STARTS = (b"", HEAD, HEAD + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
"""Nothing at all, half the headers, and a body that stops."""
AGAIN_S = 3.0


@contextmanager
def half_open(port: int, count: int) -> Iterator[list[int]]:
    """So many connections as long as the block lasts; afterwards the list holds how many the server closed."""
    command = [sys.executable, str(Path(__file__)), str(port), str(count)]
    attack = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert attack.stdout is not None
    attack.stdout.readline()
    closed: list[int] = []
    try:
        yield closed
    finally:
        printed, _ = attack.communicate("")
    closed.append(int(printed))


def connect(port: int, number: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 30)
    connection.sendall(STARTS[number % len(STARTS)])
    connection.setblocking(False)
    return connection


def main(port: int, count: int) -> None:
    """Keep them open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500), hard))
    held = selectors.DefaultSelector()
    held.register(sys.stdin, selectors.EVENT_READ)
    for number in range(count):
        held.register(connect(port, number), selectors.EVENT_READ)
    print("open", flush=True)
    closed = 0
    while True:
        for key, _ in held.select(0):
            if key.fileobj is sys.stdin:
                print(closed)
                return
            held.unregister(key.fileobj)
            key.fileobj.close()
            closed += 1
            held.register(connect(port, closed), selectors.EVENT_READ)
        time.sleep(AGAIN_S)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
