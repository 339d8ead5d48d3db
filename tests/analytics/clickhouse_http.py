"""ClickHouse's engine behind its HTTP interface, as far as `clickhouse-connect` uses it: a server that pip can install.

Every request has a session of its own, with the settings and parameters of its URL, as on a real server.
"""

import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import chdb

OURS = ("query", "query_id", "session_id", "user", "password", "compress", "enable_http_compression", "role",
        "wait_end_of_query", "send_progress_in_http_headers", "http_headers_progress_interval_ms",
        "client_protocol_version")  # fmt: skip


class Request(BaseHTTPRequestHandler):
    folder = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        asked = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        try:
            self._answer(200, run(self.folder, asked, body), {})
        except RuntimeError as error:
            said = str(error)[str(error).find("Code:") :]
            code = said.removeprefix("Code: ").partition(".")[0]
            self._answer(500, said.encode(), {"X-ClickHouse-Exception-Code": code})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body)), "X-ClickHouse-Timezone": "UTC"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def run(folder: str, asked: dict[str, str], body: bytes) -> bytes:
    session = chdb.connect(folder)
    try:
        if database := asked.pop("database", ""):
            session.query(f"USE `{database}`")
        for name, value in sorted(asked.items(), key=lambda pair: pair[0] == "readonly"):
            if name not in OURS and not name.startswith("param_"):
                session.query(f"SET {name} = '{value}'")
        params = {name.removeprefix("param_"): text for name, text in asked.items() if name.startswith("param_")}
        head, _, data = body.partition(b" FORMAT Native\n")
        if head.startswith(b"INSERT") and data:
            with tempfile.NamedTemporaryFile(suffix=".native") as file:
                file.write(data)
                file.flush()
                return session.query(f"{head.decode()} FROM INFILE '{file.name}' FORMAT Native").bytes()
        return session.query(asked.get("query", "") + body.decode(), "TabSeparated", params=params).bytes() or b""
    finally:
        session.close()


if __name__ == "__main__":
    port, Request.folder = int(sys.argv[1]), sys.argv[2]
    open_all_the_time = chdb.connect(Request.folder)  # the engine starts once
    server = ThreadingHTTPServer(("127.0.0.1", port), Request)
    server.daemon_threads = True
    Path(sys.argv[2], "ready").touch()
    server.serve_forever()
