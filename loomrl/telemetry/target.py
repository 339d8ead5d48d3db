"""Gateways, buses and trainings that are up, by their rows in LoomDB: for Prometheus' `http_sd_configs`."""

from typing import Any

from loomrl.store import LoomDB
from loomrl.store.replicas import ReplicaRole, ReplicaState, live_replicas

SCRAPED = (ReplicaRole.GATEWAY, ReplicaRole.BUS, ReplicaRole.TRAINER)
"""Those that count by themselves. What a coordinator says is the record's, which is scraped once."""


def targets(db: LoomDB) -> list[dict[str, Any]]:
    """One group for each process that is up. Labels: `role`, `node`, `endpoint` of a gateway, `run` of a training."""
    return [
        {
            "targets": [row.address],
            "labels": {"role": row.role.value, "node": row.node}
            | ({"run": row.policy} if row.policy else {})
            | ({"endpoint": row.endpoint} if row.endpoint else {}),
        }
        for row in live_replicas(db)
        if row.role in SCRAPED and row.address and row.state is not ReplicaState.STARTING
    ]
