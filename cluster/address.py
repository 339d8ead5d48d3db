"""Addresses of Ray clusters: which Ray answers there, and the remedy if none or another one does."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from loomrl.errors import ClusterError

SAME = "Install LoomRL with the cluster's Python and Ray, or start the cluster from its image (docs/cluster.md)."
DASHBOARD = "http://127.0.0.1:8265"
ANSWER_S = 5.0
"""Time limit for a cluster's answer."""
TOKEN_REMEDY = (
    "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token (or put it into ~/.ray/auth_token, or name its "
    "file in RAY_AUTH_TOKEN_PATH); on the head node `ray get-auth-token` prints it."
)


def dashboard_url(address: str | None) -> str:
    """The dashboard for jobs: this address, the environment's, or this machine's."""
    names = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
    given = address or next((os.environ[name] for name in names if os.environ.get(name)), DASHBOARD)
    if not _is_http(given):
        raise ClusterError(
            f"address={given!r}: jobs are submitted to the dashboard of a cluster, such as http://HEAD:8265. Where its "
            f"port is not reachable: `ray dashboard CLUSTER.yaml` or `kubectl port-forward`, and {DASHBOARD}."
        )
    return given.rstrip("/")


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        return False


def refuse_silent(address: str) -> None:
    """A ClusterError, within seconds, if no Ray answers at HOST:PORT or ray://HOST:PORT, or one that we cannot join.

    Ray itself would try for minutes. Addresses that Ray must look up first (`auto`, its own names) are left to it.
    """
    import grpc

    target = address.removeprefix("ray://")
    if ":" not in target or "://" in target or os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return
    with grpc.insecure_channel(target) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER_S)
        except grpc.FutureTimeoutError:
            raise ClusterError(
                f"RAY_ADDRESS={address!r}: no Ray answers there within {ANSWER_S:g} s. Is the cluster up, the port the "
                "one of its head (6379, or 10001 with ray://), and no firewall between? Without RAY_ADDRESS, LoomRL "
                "starts Ray on this machine."
            ) from None
        if target == address:
            _refuse_another(channel, address)


def _refuse_another(channel: Any, address: str) -> None:
    """Ask the cluster's GCS, with our token, for its Ray version; other errors are left to Ray."""
    import grpc
    from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled
    from ray.core.generated.gcs_service_pb2 import CheckAliveRequest
    from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub

    token = get_auth_headers_if_auth_enabled({})
    try:
        reply = NodeInfoGcsServiceStub(channel).CheckAlive(
            CheckAliveRequest(), timeout=ANSWER_S, metadata=[(name.lower(), value) for name, value in token.items()]
        )
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            raise ClusterError(f"{address}: the cluster expects another token. {TOKEN_REMEDY}") from None
        return
    if reply.ray_version != _ray():
        raise ClusterError(f"{address}: the cluster runs Ray {reply.ray_version}, LoomRL here Ray {_ray()}. {SAME}")


@contextmanager
def cluster_errors(address: str) -> Iterator[None]:
    """Translate Ray's errors on joining a cluster into ClusterErrors with a remedy."""
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise ClusterError(f"{address}: the cluster expects another token: {_first(error)} {TOKEN_REMEDY}") from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())
        if "ersion mismatch" in said:
            mine = f"Ray {_ray()}, Python {platform.python_version()}"
            raise ClusterError(
                f"{address}: the cluster runs other versions than this machine ({mine}): {said} {SAME}"
            ) from None
        raise ClusterError(f"{address}: cannot join the cluster: {said}") from error


def _ray() -> str:
    import ray

    return str(ray.__version__)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") + "."
