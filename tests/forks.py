"""Processes that begin with their imports done: forks of one server, which a process of tests starts once."""

from multiprocessing import get_context
from multiprocessing.context import ForkServerContext

FORKS: ForkServerContext = get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "alembic.autogenerate", "psycopg", "loomrl.hub.http", "loomrl.hub.client"])
