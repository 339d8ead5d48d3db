"""Addresses where no cluster of ours is: said within seconds, by name, with the remedy."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
import ray
from ray.core.generated.gcs_service_pb2 import CheckAliveReply
from ray.core.generated.gcs_service_pb2_grpc import (
    NodeInfoGcsServiceServicer,
    add_NodeInfoGcsServiceServicer_to_server,
)

from loomrl.cluster.address import dashboard_url, refuse_silent
from loomrl.cluster.job import Jobs
from loomrl.errors import ClusterError
from tests.answering import answering
from tests.cluster.cluster_support import ROOT
from tests.command_line import typed


@pytest.fixture
def server() -> Iterator[Callable[[str], str]]:
    """An HTTP server that answers everything with this text."""
    with ExitStack() as stack:
        yield lambda text: stack.enter_context(answering(lambda *_: text))


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def test_training_where_no_ray_answers_fails_within_seconds(
    tmp_path: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{unused_tcp_port}")
    said = rf"RAY_ADDRESS='127.0.0.1:{unused_tcp_port}': no Ray answers.*Without RAY_ADDRESS"
    with pytest.raises(ClusterError, match=said):
        typed("train", "control/cartpole")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_what_does_not_speak_rays_language_is_no_cluster(
    server: Callable[[str], str], scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomrl.cluster.address.ANSWER_S", 0.5)
    address = scheme + server("hello").removeprefix("http://")
    with pytest.raises(ClusterError, match="no Ray answers there"):
        refuse_silent(address)


@pytest.mark.parametrize("address", ["auto", "local"])
def test_what_ray_has_to_look_for_is_left_to_it(address: str) -> None:
    refuse_silent(address)


def test_a_dashboard_that_does_not_answer_is_named(unused_tcp_port: int) -> None:
    with pytest.raises(ClusterError, match=rf"127.0.0.1:{unused_tcp_port}.*no dashboard.*kubectl port-forward"):
        Jobs(f"http://127.0.0.1:{unused_tcp_port}")


def test_a_server_that_is_no_dashboard_is_named(server: Callable[[str], str]) -> None:
    with pytest.raises(ClusterError, match="is not a Ray dashboard"):
        Jobs(server("hello"))


def test_a_cluster_of_another_ray_is_refused_with_both_versions(
    server: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")  # restored afterwards
    with pytest.raises(ClusterError, match=r"runs Ray 2\.9\.0, LoomRL needs 2\.\d+"):
        Jobs(server(json.dumps({"version": "4", "ray_version": "2.9.0", "ray_commit": "x"})))


def test_the_address_that_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://far:8265/")
    assert dashboard_url(None) == "http://far:8265"
    assert dashboard_url("http://near:1") == "http://near:1"
    monkeypatch.delenv("RAY_ADDRESS")
    assert dashboard_url(None) == "http://127.0.0.1:8265"


@pytest.mark.parametrize("address", ["10.0.0.1:6379", "ray://head:10001", "http://"])
def test_jobs_need_the_address_of_a_dashboard(address: str) -> None:
    with pytest.raises(ClusterError, match="http://HEAD:8265"):
        dashboard_url(address)


@pytest.fixture
def gcs() -> Iterator[Callable[..., tuple[str, list[dict[str, str]]]]]:
    """Something that speaks as a cluster's GCS does; its address, and what callers show."""
    made = []

    def serve(version: str, refuses: bool = False) -> tuple[str, list[dict[str, str]]]:
        shown: list[dict[str, str]] = []

        class Gcs(NodeInfoGcsServiceServicer):  # type: ignore[misc]
            def CheckAlive(self, request: Any, context: Any) -> Any:
                shown.append(dict(context.invocation_metadata()))
                if refuses:
                    context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
                return CheckAliveReply(ray_version=version)

        server = grpc.server(ThreadPoolExecutor(1))
        add_NodeInfoGcsServiceServicer_to_server(Gcs(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        made.append(server)
        return f"127.0.0.1:{port}", shown

    yield serve
    for one in made:
        one.stop(None).wait()


def test_a_cluster_of_another_ray_is_refused_before_ray_tries(gcs: Callable[..., Any]) -> None:
    with pytest.raises(ClusterError, match=r"runs Ray 2\.9\.0, LoomRL here Ray 2\.\d+.*Install LoomRL"):
        refuse_silent(gcs("2.9.0")[0])
    refuse_silent(gcs(ray.__version__)[0])


def test_a_cluster_that_does_not_take_our_token_is_refused_with_the_remedy(gcs: Callable[..., Any]) -> None:
    with pytest.raises(ClusterError, match=r"expects another token. Set RAY_AUTH_MODE=token"):
        refuse_silent(gcs(ray.__version__, refuses=True)[0])


def test_a_clusters_gcs_is_asked_with_our_token(gcs: Callable[..., Any], tmp_path: Path) -> None:
    """In a process of its own: Ray reads the mode of authentication once."""
    address, shown = gcs(ray.__version__)
    code = f"from loomrl.cluster.address import refuse_silent; refuse_silent({address!r})"
    auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ours", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=os.environ | auth, cwd=tmp_path, check=True)
    assert [each["authorization"] for each in shown] == ["Bearer ours"]
