"""A feeder with small pages, to be killed in one of them."""

import sys
from pathlib import Path

from loomrl.analytics import feeder
from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.feeding import Feeding
from loomrl.analytics.place import StoreLocation

if __name__ == "__main__":
    url, folder, engine = sys.argv[1:]
    feeder.PAGE = 20
    with Feeding(url, StoreLocation(folder=Path(folder)), engine=ChdbEngine() if engine else None) as feeding:
        print("it loads", flush=True)
        feeding.round()
