"""A gateway of a service in a process of its own, until it is killed. Its experiment comes on stdin."""

import asyncio
import sys

from loomrl.config import ServingExperiment
from loomrl.load import parse_yaml
from loomrl.serving.deployment.process import GatewayProcess
from loomrl.serving.deployment.station import Station


async def main(resolved: str) -> None:
    """Answer for ever."""
    experiment = ServingExperiment.parse(parse_yaml(resolved, origin="stdin"))
    await GatewayProcess(Station(experiment=experiment, token="secret")).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.stdin.read()))
