"""Databases for every test: SQLite in a temporary folder, and a real PostgreSQL that the session starts and stops."""

import atexit
import gc
import getpass
import inspect
import os
import pwd
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from httpx._transports import default
from hypothesis import HealthCheck, settings
from sqlalchemy import make_url

from loomrl import artifacts
from loomrl.own_ray import own_ray
from loomrl.store import LoomDB, db, open_store
from tests.needs import need, postgres_binaries

pytest_plugins = ["tests.costs", "tests.imports"]

PASSWORD = "only-on-loopback"
SLOW_MOST_S = 1800
SHARED = ExitStack()
"""Holds the Ray that `ray_cluster` hands on."""
COMES_NEXT = pytest.StashKey[pytest.Function | None]()

gc.disable()  # what is imported and collected stays

# Ray joins a cluster that it finds in this folder: tests that run beside each other must not find each other's.
# (Sockets lie in it, whose paths must be short.)
os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="loom-", dir="/tmp")
atexit.register(shutil.rmtree, os.environ["RAY_TMPDIR"], ignore_errors=True)
# Ray's processes are nicer than all others by default, and would starve beside other tests.
os.environ.setdefault("RAY_worker_niceness", "0")
# A worker is started when something runs in it. Ray starts one for every core at once, and most tests need none.
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")

# A busy machine is no reason to fail a property; in CI the examples are the same every time.
settings.register_profile(
    "loomrl", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("loomrl")


def _hurry_httpx() -> None:
    """Every client reads the certificates of the whole world, which takes longer than what most of them ask."""
    real = default.create_ssl_context

    @cache
    def shared(*_: str | None) -> ssl.SSLContext:
        return real()

    def made(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is True and cert is None and trust_env:
            return shared(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        return real(verify, cert, trust_env)

    default.create_ssl_context = made


_hurry_httpx()

# Processes die in tests, the machine does not: nothing waits for the disk.
db._PRAGMAS = (*db._PRAGMAS, "synchronous=OFF")
artifacts._fsync = lambda path: None


def _one_thread() -> Iterator[None]:
    """Tiny tensors are slower on two; and whoever runs next has as many as before, or its sums have other last bits."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


one_thread = pytest.fixture(_one_thread)
one_thread_in_module = pytest.fixture(scope="module")(_one_thread)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Files that use the shared Ray come first, and in them the tests that do: a process of tests starts it once.

    Then come the files beside this one, some of which are a minute long: last, they would be waited for alone.

    A slow test without a limit of its own has SLOW_MOST_S: on a busy machine it takes several times as long.
    """
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_MOST_S))
    without = {item: "ray_cluster" not in item.fixturenames for item in items}
    files = {item.path: number for number, item in enumerate(reversed(items))}
    users = {item.path for item in items if not without[item]}
    here = Path(__file__).parent
    items.sort(key=lambda item: (item.path not in users, item.path.parent != here, -files[item.path], without[item]))


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: nobody looks through them again for what might go."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _told_nothing_yet() -> None:
    """What is logged once in a process is logged for every test."""
    debug = sys.modules.get("ray.util.debug")
    if debug is not None:
        debug.reset_log_once()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Function | None) -> None:
    """Fixtures that end may ask who comes next."""
    item.session.stash[COMES_NEXT] = nextitem


@pytest.fixture(scope="module")
def ray_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """A small Ray of our own. Where the next file begins with it and all of it is free, it is handed on."""
    import ray

    if not ray.is_initialized():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers know the tests' modules
            SHARED.enter_context(own_ray(num_cpus=4))
        _hurry_rllib()
    yield
    nextitem = request.session.stash[COMES_NEXT]
    if nextitem is None or "ray_cluster" not in nextitem.fixturenames or not _is_free():
        SHARED.close()


@pytest.fixture
def control_environments() -> None:
    """Known to RLlib by their names."""
    from tests.algorithms.control_envs import register

    register()


@pytest.fixture(scope="session")
def postgres_server(unused_tcp_port_factory: Callable[[], int]) -> Iterator[str]:
    """The base URL of a PostgreSQL server of our own; append a database name."""
    need("PostgreSQL")
    binaries = postgres_binaries()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="loom-pg-"))
    account = _account(folder)
    port = unused_tcp_port_factory()
    _initialise(binaries, folder, account)
    where = ["-D", folder / "data", "-k", folder, "-h", "127.0.0.1", "-p", str(port)]
    command = [binaries / "postgres", *where, "-c", "fsync=off"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, user=account, cwd=folder, stderr=log)
    try:
        _wait_until_ready(server, port, folder / "log")
        yield f"postgresql://loom:{PASSWORD}@127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGQUIT)  # "immediate": its data is thrown away anyway
        server.wait(timeout=30)
        shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """An empty PostgreSQL database that nobody is connected to. (One for all tests: making a new one takes longer.)"""
    url = f"{postgres_server}/postgres"
    with psycopg.connect(url, autocommit=True) as connection:
        others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM {others}")
        ours = "pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
        for (schema,) in connection.execute(f"SELECT nspname FROM {ours}").fetchall():
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE')
        connection.execute("CREATE SCHEMA public")
    return url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A fresh SQLite database; its file does not exist yet."""
    return f"sqlite:///{tmp_path}/loom.db"


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """A fresh database: SQLite, or what `parametrize("store_url", …, indirect=True)` names.

    Every promise of `store/` and `hub/` is tested on both databases there, so each service above them needs one test
    with PostgreSQL.
    """
    kind = getattr(request, "param", "sqlite")
    url: str = request.getfixturevalue({"sqlite": "sqlite_url", "postgresql": "postgres_url"}[kind])
    return url


@pytest.fixture
def recorded_store_url(store_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same for settings, which are recorded and hold no password."""
    url = make_url(store_url)
    if url.password is not None:
        monkeypatch.setenv("PGPASSWORD", str(url.password))
    return url._replace(password=None).render_as_string()


@pytest.fixture
def store(store_url: str) -> Iterator[LoomDB]:
    """An open LoomDB."""
    opened = open_store(store_url)
    yield opened
    opened.close()


def _hurry_rllib() -> None:
    """Without two waits of RLlib's and Tune's that prove nothing.

    A connector asks for the source lines of the whole stack, which is deep here (0.4 s to build an algorithm), and an
    algorithm that stops waits until a thread has slept (0.6 s).
    """
    from ray.rllib.connectors import connector_v2
    from ray.tune.utils.util import UtilMonitor

    def stack() -> list[SimpleNamespace]:
        return [SimpleNamespace(frame=sys._getframe(1)), SimpleNamespace(frame=sys._getframe(2))]

    connector_v2.inspect = SimpleNamespace(stack=stack, getargvalues=inspect.getargvalues)
    UtilMonitor.join = lambda monitor, timeout=None: None


def _is_free() -> bool:
    """True if all of Ray's cores are there soon: actors that were killed take a moment to end."""
    import ray

    if not ray.is_initialized():  # the test shut it down
        return False
    deadline = time.monotonic() + 2
    while not (free := ray.available_resources().get("CPU") == 4) and time.monotonic() < deadline:
        time.sleep(0.01)
    return free


def _account(folder: Path) -> str:
    """The account that the server runs as: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    account = pwd.getpwnam("postgres")
    os.chown(folder, account.pw_uid, account.pw_gid)
    return account.pw_name


def _initialise(binaries: Path, folder: Path, account: str) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    shutil.chown(secret, account)
    options = ["--username=loom", f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
    subprocess.run(
        [binaries / "initdb", "-D", folder / "data", *options],
        user=account,
        cwd=folder,
        check=True,
        capture_output=True,
    )


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            psycopg.connect(f"postgresql://loom:{PASSWORD}@127.0.0.1:{port}/postgres").close()
        except psycopg.OperationalError:
            time.sleep(0.01)
        else:
            return
    pytest.fail(f"PostgreSQL did not start:\n{log.read_text()}")
