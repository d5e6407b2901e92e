"""`python -m speck.api.server`: `speck serve` with the settings of the environment."""

from __future__ import annotations

from speck.api.server import serve
from speck.config import Config

if __name__ == "__main__":
    serve(Config.from_env())
