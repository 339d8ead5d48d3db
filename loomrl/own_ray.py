"""A Ray of this process alone: on loopback, with a random token, in a folder that only this user can enter.

By itself Ray listens on all interfaces, writes a token into the user's home, and keeps its files where anyone can look.
"""

import atexit
import logging
import math
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loomrl.errors import ClusterError
from loomrl.process import environ

TOKEN = "auth_token"
ADDRESS = "address"
LIMITS_S = 30.0, 150.0
"""Time limits of the first start and of the one retry."""
LOOK_S = 0.1
_ONCE = threading.RLock()
"""Held while Ray starts: several threads may use it first."""
VITAL = {"gcs_server", "raylet"}
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
MEET: Mapping[str, str] = dict.fromkeys(
    ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo" if sys.platform.startswith("linux") else "lo0"
)
"""Where torch's process groups listen."""
SERVE_LOOP = "RAY_SERVE_CONTROL_LOOP_INTERVAL_S"
"""Ray Serve's variable for the pause of its controller: by itself 0.1 s, which costs 0.02 of a core for nothing."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable for machines that are never part of a cluster: 0 makes it listen, and look for others, on loopback."""


@contextmanager
def own_ray(**settings: Any) -> Iterator[Path]:
    """A Ray of our own for this context, and its folder; `settings` are those of `ray.init`.

    Another process of this user joins it with RAY_ADDRESS, RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH: the folder's
    files `address` and `auth_token` say which. The folder is kept after an error, for Ray's logs in it.
    """
    import ray

    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        stack.enter_context(authenticated(folder))
        stack.enter_context(environ({SERVE_LOOP: os.environ.get(SERVE_LOOP, "0.5")}))
        stack.callback(ray.shutdown)
        _start(folder, settings)
        (folder / ADDRESS).write_text(ray.get_runtime_context().gcs_address)
        yield folder


def ensure_ray(**settings: Any) -> None:
    """Join the cluster in RAY_ADDRESS, or start a Ray of our own until this process ends, unless one is running."""
    import ray

    with _ONCE:
        if ray.is_initialized():
            return
        if address := cluster_address():
            join_ray(address)
            return
        until_exit = ExitStack()
        until_exit.enter_context(own_ray(**settings))
        atexit.register(until_exit.close)


def ray_on_demand() -> None:
    """Have the first use of Ray in this process call `ensure_ray`: by itself Ray would start an open one then."""
    import ray

    for name in ("_private.auto_init_hook", "_private.client_mode_hook", "util.placement_group"):
        import_module(f"ray.{name}").auto_init_ray = ensure_ray  # type: ignore[attr-defined]
    if not ray.is_initialized():  # `ray.init` would set it
        logging.getLogger("ray").setLevel(QUIET["logging_level"])


def cluster_address() -> str | None:
    """The cluster to join, by RAY_ADDRESS; None for a Ray of our own."""
    named = os.environ.get("RAY_ADDRESS", "")
    return None if named in ("", "local") else named


def join_ray(address: str, **settings: Any) -> None:
    """Join the cluster at this address; one on loopback is looked for there. `settings` are those of `ray.init`."""
    import ray
    from ray._common.network_utils import is_localhost

    host = urlsplit(address if "://" in address else f"ray://{address}").hostname or ""
    with on_loopback() if is_localhost(host) else nullcontext():
        ray.init(address, **QUIET, **settings)


def ray_logs() -> Path:
    """The folder of the running Ray's logs on this machine."""
    from ray._private import worker

    return Path(worker._global_node.get_logs_dir_path())


@contextmanager
def on_loopback() -> Iterator[None]:
    """Have Ray start on loopback, or join there: by itself it reads 127.0.0.1 as the machine's other address."""
    from ray._private import ray_constants

    with environ({LOOPBACK: "0"}), replaced(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that only this user can enter. Ray's own is within: Ray opens it to everybody, mode 0777."""
    from ray._common.utils import get_default_system_temp_dir

    folder = Path(tempfile.mkdtemp(prefix="loomrl-", dir=get_default_system_temp_dir()))  # short: sockets lie in it
    try:
        yield folder
    except Exception:
        raise
    except BaseException:  # the user ended it
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def authenticated(folder: Path) -> Iterator[None]:
    """Have Ray use a new token, kept in this folder, and loopback: in this process and in those that it starts."""
    token = folder / TOKEN
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    mine = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_AUTH_TOKEN": None, **MEET}
    try:
        with on_loopback(), environ(mine):
            _read_again()
            yield
    finally:
        _read_again()


def _read_again() -> None:
    """Ray read its settings when it was imported, and keeps the token that it found first."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    Config.initialize("")  # first: a thread of Ray's that still ends would look for a token that is gone
    AuthenticationTokenLoader.instance().reset_cache()


def _start(folder: Path, settings: Mapping[str, Any]) -> None:
    """Start Ray, and once more with a longer limit if this machine is too busy."""
    first_s, second_s = LIMITS_S
    try:
        _start_within(first_s, folder, settings)
    except TimeoutError:
        print(f"loomrl: Ray has not started within {first_s:g} s; trying once more.", file=sys.stderr, flush=True)
        try:
            _start_within(second_s, folder, settings)
        except TimeoutError as error:
            raise ClusterError(
                f"Ray did not start on this machine, nor when it was tried again: {error}. Is the machine busy, or "
                f"short of memory? Run the command again when it has less to do. Ray's logs: "
                f"{folder}/ray/session_latest/logs"
            ) from None


def _start_within(limit_s: float, folder: Path, settings: Mapping[str, Any]) -> None:
    """Start Ray; a TimeoutError, with nothing left running, if that takes longer."""
    import ray
    from ray._private import node, services

    class Node(node.Node):  # type: ignore[misc]
        """Ray's node, known also if it fails while it is made."""

        def __init__(self, ray_params: Any, **more: Any) -> None:
            made.append(self)
            ray_params.include_log_monitor = False  # it reads every log, for drivers that are not `QUIET`
            ray_params.no_monitor = True  # it adds nodes, and there is one
            super().__init__(ray_params, **more)

        def start_api_server(self, *, include_dashboard: bool | None, **more: Any) -> None:
            """Only with a dashboard: without one, two CPU seconds for a process that reports usage to Ray's authors."""
            if include_dashboard:
                super().start_api_server(include_dashboard=include_dashboard, **more)

    made: list[Node] = []
    found = _patient(services.get_node, limit_s, lambda: {kind for kind, _ in made[0].dead_processes()} & VITAL)
    with ExitStack() as stack:
        stack.enter_context(environ({"RAY_gcs_server_port_wait_time_s": f"{math.ceil(limit_s)}"}))
        stack.enter_context(replaced(node, "Node", Node))
        stack.enter_context(replaced(services, "get_node", found))  # Ray gives its raylet 30 s, without a setting
        try:
            ray.init("local", **{"include_dashboard": False, "_temp_dir": str(folder / "ray"), **QUIET, **settings})
        except Exception as error:  # Ray has no type for this error
            for each in made:
                each.kill_all_processes(check_alive=False, allow_graceful=False)
            if "timed out" in str(error).lower():
                raise TimeoutError(" ".join(str(error).split()).rstrip(".")) from error
            raise


def _patient(find: Callable[..., Any], limit_s: float, dead: Callable[[], set[str]]) -> Callable[..., Any]:
    """Ray's `get_node`, repeated until the node is known; a TimeoutError if that takes too long, or never happens."""
    until = time.monotonic() + limit_s

    def found(*where: Any) -> Any:
        while True:
            try:
                return find(*where)
            except RuntimeError:
                if gone := dead():
                    raise TimeoutError(f"{' and '.join(sorted(gone))} ended: waiting for others timed out") from None
                if time.monotonic() > until:
                    raise TimeoutError(f"Ray's node timed out after {limit_s:g} s") from None
            time.sleep(LOOK_S)

    return found


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of a module or class, with another value for this context."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
