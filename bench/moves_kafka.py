"""bench.moves with Kafka in the cloud: `make bench-moves BROKER=kafka`."""

from __future__ import annotations

import sys

from bench.moves import main
from speck.fog.site_record import KAFKA

if __name__ == "__main__":
    sys.exit(main(KAFKA))
