"""The tables and views of the columnar store. No word that anybody said is in it: figures, labels, ids and times."""

import re
from dataclasses import dataclass

VERSION = "2"
"""Version of the schema. A store of another version is not migrated: it is loaded anew from LoomDB."""
ABOUT = "about"
"""The table of what the store knows of itself, by name."""

_LABEL = "LowCardinality(String)"
_LABEL_TYPE = re.compile(r"LowCardinality\((\w+)\)")
_TIME = "DateTime64(3, 'UTC')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of facts. A row that is loaded twice is one: `key` names it."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and type, in the order of rows."""
    key: str
    made: tuple[str, ...] = ()
    """Columns that the database makes."""

    @property
    def names(self) -> list[str]:
        """Names of the columns that are loaded."""
        return [name for name, _ in self.columns]

    @property
    def types(self) -> list[str]:
        """Types of the columns as they are sent: labels as texts, which the database turns into dictionaries faster."""
        return [_LABEL_TYPE.sub(r"\1", kind) for _, kind in self.columns]

    @property
    def ddl(self) -> str:
        """The statement that makes it. Deleted rows leave the disk within a minute."""
        columns = ", ".join([*(f"{name} {kind}" for name, kind in self.columns), *self.made])
        settings = "old_parts_lifetime = 1, merge_tree_clear_old_parts_interval_seconds = 1"
        engine = f"ReplacingMergeTree ORDER BY ({self.key}) SETTINGS {settings}"
        return f"CREATE TABLE {self.name} ({columns}) ENGINE = {engine}"


TRAJECTORIES = Table(
    name="trajectories",
    columns=(
        ("hub", _LABEL),
        ("position", "UInt64"),
        ("id", "String"),
        ("source", _LABEL),
        ("run", _LABEL),
        ("environment", _LABEL),
        ("family", _LABEL),
        ("level", "Int32"),
        ("task", _LABEL),
        ("version", _LABEL),
        ("arms", f"Array({_LABEL})"),
        ("ending", _LABEL),
        ("success", "Nullable(Float64)"),
        ("reward", "Float64"),
        ("turns", "UInt32"),
        ("tokens", "UInt64"),
        ("sampled", "UInt64"),
        ("seconds", "Nullable(Float64)"),
        ("usd", "Nullable(Float64)"),
        ("started_at", _TIME),
        ("finished_at", _TIME),
    ),
    made=("key UInt64 MATERIALIZED cityHash64(id)",),
    key="hub, id",
)
"""Trajectories of all hubs. `position` is 0 for those that came out of an archive; `key` is for joins."""

REWARDS = Table(
    name="rewards",
    columns=(
        ("position", "UInt64"),
        ("replaces", "UInt64"),
        ("id", "String"),
        ("trajectory", "String"),
        ("endpoint", _LABEL),
        ("task", _LABEL),
        ("version", _LABEL),
        ("total", "Float64"),
        ("confidence", "Float64"),
        ("components", f"Map({_LABEL}, Float64)"),
        ("created_at", _TIME),
    ),
    made=("key UInt64 MATERIALIZED cityHash64(trajectory)",),
    key="position",
)
"""All that were made; `replaces` is the position of the same trajectory's reward before."""

FEEDBACK = Table(
    name="feedback",
    columns=(
        ("position", "UInt64"),
        ("id", "String"),
        ("trajectory", "String"),
        ("source", _LABEL),
        ("kind", _LABEL),
        ("value", "Float64"),
        ("created_at", _TIME),
    ),
    made=("key UInt64 MATERIALIZED cityHash64(trajectory)",),
    key="position",
)
"""Without its words."""

EXPOSURES = Table(
    name="exposures",
    columns=(
        ("endpoint", _LABEL),
        ("position", "UInt64"),
        ("number", "UInt32"),
        ("revision", "UInt32"),
        ("test", _LABEL),
        ("arm", _LABEL),
        ("unit", "UInt64"),
        ("metric", _LABEL),
        ("value", "Float64"),
        ("at", _TIME),
    ),
    key="endpoint, position, number",
)
"""Observations of arms: who was exposed to which, and what came of it."""

TABLES = (TRAJECTORIES, REWARDS, FEEDBACK, EXPOSURES)

VIEWS = {
    "judged": "SELECT * FROM rewards WHERE position NOT IN (SELECT replaces FROM rewards WHERE replaces > 0)",
    "baselines": """
        SELECT task, attempts, failed, known, solved AS success, turns, sampled, seconds, judged, reward, deviation,
               confidence
        FROM (
            SELECT task, count() AS attempts, countIf(ending = 'failed') AS failed,
                   count(success) AS known, avg(success) AS solved, avg(turns) AS turns,
                   avg(sampled) AS sampled,
                   avg(seconds) AS seconds
            FROM trajectories GROUP BY task
        ) AS a
        LEFT JOIN (
            SELECT task, count() AS judged, toNullable(avg(total)) AS reward,
                   toNullable(stddevSamp(total)) AS deviation, toNullable(avg(confidence)) AS confidence
            FROM judged GROUP BY task
        ) AS b USING (task)
        ORDER BY task""",
    "versions": """
        SELECT version, attempts, failed, known, solved AS success, sampled, seconds, judged, reward, deviation,
               first_at, last_at
        FROM (
            SELECT version, count() AS attempts, countIf(ending = 'failed') AS failed,
                   count(success) AS known, avg(success) AS solved, avg(sampled) AS sampled,
                   avg(seconds) AS seconds,
                   min(finished_at) AS first_at, max(finished_at) AS last_at
            FROM trajectories GROUP BY version
        ) AS a
        LEFT JOIN (
            SELECT version, count() AS judged, toNullable(avg(total)) AS reward,
                   toNullable(stddevSamp(total)) AS deviation
            FROM judged GROUP BY version
        ) AS b USING (version)
        ORDER BY last_at, version""",
    "cohorts": """
        SELECT endpoint, test, revision, arm, metric, count() AS units, avg(value) AS mean,
               stddevSamp(value) AS deviation, 1.96 * deviation / sqrt(units) AS margin
        FROM exposures GROUP BY endpoint, test, revision, arm, metric
        ORDER BY endpoint, test, revision, metric, arm""",
    "cost": """
        SELECT toDate(finished_at) AS day, source, task, count() AS attempts, sum(tokens) AS tokens,
               sum(sampled) AS sampled, sum(seconds) AS seconds, sum(usd) AS usd,
               count(success) AS known, sum(success) AS solved,
               if(solved > 0, sum(counted) / solved, NULL) AS sampled_per_success
        FROM (SELECT *, if(isNotNull(success) OR ending = 'failed', sampled, 0) AS counted FROM trajectories)
        GROUP BY day, source, task ORDER BY day, source, task""",
    "satisfaction": """
        SELECT toDate(created_at) AS day, version, feedback.source AS source, count() AS said, avg(value) AS mean,
               countIf(value < 0.5) / said AS negative
        FROM trajectories ANY RIGHT JOIN feedback ON trajectories.key = feedback.key
        WHERE kind != 'comment' GROUP BY day, version, source ORDER BY day, version, source""",
}
"""The standard questions: `SELECT * FROM baselines`. `judged` has of every trajectory the reward that holds."""

STANDARD = tuple(name for name in VIEWS if name != "judged")
