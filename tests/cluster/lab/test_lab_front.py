"""HAProxy as we configure it, before two gateways on hosts of which one loses its power."""

import concurrent.futures
import json
import subprocess
import time
from pathlib import Path

import pytest

from loomrl.serving.deployment.front import FrontSettings, configuration
from tests.cluster.lab.lab_support import a_name, a_network
from tests.lab import Lab
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("HAProxy"), pytest.mark.timeout(200)]
DEADLINE_S, CALLS = 60.0, 8
GATEWAY = """
import http.server, sys
class Gateway(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = sys.argv[1].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
http.server.ThreadingHTTPServer(("0.0.0.0", 9000), Gateway).serve_forever()
"""


def test_calls_on_idle_connections_to_a_host_that_is_gone_are_answered_by_the_other(tmp_path: Path) -> None:
    with Lab.up(a_name(), ["head", "one", "two"], network=a_network()) as lab:
        front = lab.shared / "front"
        front.mkdir()
        (front / "unavailable.http").write_text("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
        settings = FrontSettings(host="127.0.0.1", port=8000, deadline_s=DEADLINE_S)
        text = configuration(settings, Path("/tmp/shared/front"), threads=1)
        for slot, host in ((1, "one"), (2, "two")):
            address = f"{lab.plan.host(host).address}:9000"
            text = text.replace(f"server g{slot} 127.0.0.1:1 ", f"server g{slot} {address} ", 1)
        lines = [line.removesuffix(" disabled") if " server g1 " in line or " server g2 " in line else line
                 for line in text.splitlines()]  # fmt: skip
        (front / "haproxy.cfg").write_text("\n".join([*lines, ""]))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        programs = [lab.start(host, ["python", "-c", GATEWAY, host], env={}, **quiet) for host in ("one", "two")]
        programs += [lab.start("head", ["haproxy", "-db", "-f", "/tmp/shared/front/haproxy.cfg"], env={}, **quiet)]

        def call(number: int) -> dict[str, str]:
            told = '{"status": "%{http_code}", "seconds": "%{time_total}"}'
            words = ["curl", "-s", "-m", "100", "-o", "/dev/null", "-w", told, "-H", f"x-loomrl-session: {number}"]
            done = lab.run("head", [*words, "-d", "x", "http://127.0.0.1:8000/v1/x"], check=False)
            found: dict[str, str] = json.loads(done.stdout)
            return found

        with concurrent.futures.ThreadPoolExecutor(CALLS) as callers:
            deadline = time.monotonic() + 60
            while {each["status"] for each in callers.map(call, range(CALLS))} != {"200"}:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            lab.power_off("one")
            answers = list(callers.map(call, range(CALLS, 2 * CALLS)))
    for program in programs:
        program.wait(timeout=20)  # the lab has ended them
    assert {each["status"] for each in answers} == {"200"}
    assert max(float(each["seconds"]) for each in answers) < DEADLINE_S / 3
