"""Questions that are refused: nothing is written and nothing outside is read, whatever it looks like."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loomrl.analytics.place import DATABASE
from loomrl.analytics.question import Asking, open_asking
from loomrl.errors import AnalyticsError
from tests.analytics.world import World

OUTSIDE = (
    "SELECT file('{secret}')",
    "SELECT `file`('{secret}')",
    "SELECT FILE('{secret}')",
    "SELECT * APPLY(file) FROM (SELECT '{secret}' AS x)",
    "SELECT arrayMap(x -> file(x), ['{secret}'])",
    "WITH 'x' AS y SELECT y UNION ALL SELECT file('{secret}')",
    "SELECT * FROM file('{secret}', 'LineAsString')",
    "SELECT * FROM fileCluster('c', '{secret}', 'LineAsString')",
    "DESCRIBE file('{secret}')",
    "SELECT * FROM default.`{secret}`",
    'SELECT * FROM "default".`{secret}`',
    "SELECT * FROM `{secret}`",
    "SELECT * FROM url('http://127.0.0.1:9/', 'LineAsString')",
    "SELECT * FROM s3('http://127.0.0.1:9/b/k', 'LineAsString')",
    "SELECT * FROM remote('127.0.0.1:9', system.one)",
    "SELECT * FROM sqlite('{made}', 't')",
    "SELECT * FROM executable('id', 'LineAsString', 'x String')",
    "SELECT * FROM Python(subprocess)",
    "SELECT * FROM merge('system', '.*')",
    "SELECT * FROM eval('SELECT 1')",
    "SELECT * FROM system.tables",
    "SELECT 1 WHERE 1 IN (system.one)",
    "SELECT * FROM information_schema.tables",
    "SELECT getSetting('readonly')",
    "SELECT 1 INTO OUTFILE '{made}'",
    "SELECT 1 INTO OUTFILE '{made}' FORMAT CSV",
    "EXPLAIN SELECT file('{secret}')",
)
WRITES = (
    "INSERT INTO rewards SELECT * FROM rewards",
    "WITH x AS (SELECT 1) INSERT INTO rewards SELECT * FROM rewards",
    "INSERT INTO FUNCTION file('{made}', 'CSV', 'x Int8') VALUES (1)",
    "DROP TABLE rewards",
    "ALTER TABLE rewards DELETE WHERE 1",
    "TRUNCATE TABLE rewards",
    "CREATE TABLE mine (x Int8) ENGINE = Memory",
    "CREATE TEMPORARY TABLE mine (x Int8)",
    "SET readonly = 0",
    "SELECT 1 SETTINGS readonly = 0",
    "SELECT 1; DROP TABLE rewards",
    "SYSTEM SHUTDOWN",
    "KILL QUERY WHERE 1",
    "BACKUP TABLE rewards TO File('{made}')",
    "EXPLAIN AST SELECT 1",
)
MALFORMED = ("SELEC 1", "", "SELECT (", "SELECT 'x", "SELECT 1 FROM", "\0", "SELECT 1 -- \0")


@pytest.fixture(scope="module")
def asking(full: World) -> Iterator[Asking]:
    """Opened once."""
    with open_asking(full.place) as opened:
        yield opened


@pytest.mark.parametrize("sql", OUTSIDE + WRITES)
def test_nothing_is_written_and_nothing_outside_is_read(asking: Asking, tmp_path: Path, sql: str) -> None:
    secret, made = tmp_path / "secret.txt", tmp_path / "made"
    secret.write_text("hidden")
    with pytest.raises(AnalyticsError) as caught:
        asking.ask(sql.format(secret=secret, made=made))
    assert "hidden" not in str(caught.value)
    assert not made.exists()
    assert asking.ask("SELECT count() FROM rewards").rows[0][0] == 13


@pytest.mark.parametrize("sql", MALFORMED)
def test_what_is_no_sql_is_said_in_a_sentence(asking: Asking, sql: str) -> None:
    with pytest.raises(AnalyticsError) as caught:
        asking.ask(sql)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_unknown_tables_are_answered_with_those_that_are(asking: Asking) -> None:
    with pytest.raises(AnalyticsError, match=r"'nope'\. Known: trajectories, rewards, .*satisfaction"):
        asking.ask("SELECT * FROM nope")
    with pytest.raises(AnalyticsError, match="nope"):
        asking.ask("SELECT nope FROM rewards")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'file(1)' AS x",
        "SELECT '\\' file(' AS x, $$system.$$ AS y",
        "SELECT format('{}', 'a') AS formatted -- file(",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "WITH x AS (SELECT 1 AS y) SELECT y FROM x",
        f"SELECT count() FROM {DATABASE}.rewards",
        "SELECT number FROM numbers(3)",
        "DESCRIBE TABLE rewards",
        "SHOW TABLES",
        "select sum(total), argMax(total, position), quantileIf(0.5)(total, total > 0) from rewards;",
    ],
)
def test_harmless_questions_are_answered(asking: Asking, sql: str) -> None:
    assert asking.ask(sql)
