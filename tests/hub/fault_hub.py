"""A hub as a process that gets killed: `fault_hub.py STORE_URL PORT`."""

import sys

from loomrl.config import HubConfig
from loomrl.http.listen import open_door
from loomrl.hub import open_hub
from loomrl.hub.http import serve_hub

if __name__ == "__main__":
    hub = open_hub(sys.argv[1], HubConfig(lease_s=1.0), groups_per_update=10_000)
    serve_hub(hub, open_door(port=int(sys.argv[2])))
