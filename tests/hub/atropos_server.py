"""Serve a hub with the Atropos routes: `atropos_server.py STORE_URL PORT`."""

import sys

from loomrl.config import HubConfig
from loomrl.http.listen import open_door
from loomrl.hub.atropos.routes import atropos_routes
from loomrl.hub.http import serve_hub
from loomrl.hub.open import open_hub
from loomrl.store import open_store
from loomrl.store.notes import Notes

hub = open_hub(sys.argv[1], HubConfig())
notes = Notes(open_store(sys.argv[1]))
serve_hub(hub, open_door(port=int(sys.argv[2])), extra_routes=atropos_routes(hub, notes))
