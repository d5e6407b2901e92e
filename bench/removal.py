"""The deletions of figure 6 alone: 100 jobs, some minutes instead of half an hour.

Three rounds over the WAN and three with all sites side by side, each of the three ways in every
round, in an order that is reversed from round to round. Prints the seconds of each, both floors,
the ratios, and what figure 6 claims of them; writes no result.

`python -m bench.removal`, as root.
"""

from __future__ import annotations

import json
import sys

from bench.chains import CHECKPOINT_S, Bare, Chain
from bench.common import Api, fog_with_service, say, timed
from bench.experiment import interval
from bench.fig6 import (
    LANS,
    MOST,
    NEAR,
    SITES,
    WAN,
    WAYS,
    Speck,
    await_quiet,
    compare_deletion,
    make_way,
)
from speck.fog.wan import Wan
from speck.model.values import JsonObject

ROUNDS = 3
UPLINKS = {"wan": WAN, "near": NEAR}


def measure() -> list[JsonObject]:
    """One row for each series, round and way."""
    rows: list[JsonObject] = []
    wan = Wan(WAN, LANS, host=LANS[0][0])
    with fog_with_service(SITES - 1, 1, MOST // 2 + 5, CHECKPOINT_S, wan=wan) as (fog, api):
        bare = Bare(fog)
        say("warming up")
        for way in ("speck", "floor") * 2:
            _delete(way, api, bare, Chain.at_random(fog, MOST))
        for n in range(1, ROUNDS + 1):
            for series, uplinks in UPLINKS.items():
                for site, uplink in uplinks.items():
                    fog.shape(site, uplink)
                for way in WAYS if n % 2 else WAYS[::-1]:
                    seconds = _delete(way, api, bare, Chain.at_random(fog, MOST, n))
                    rows.append({"series": series, "round": n, "way": way, **seconds})
                    say(json.dumps(rows[-1]))
    return rows


def _delete(way_name: str, api: Api, bare: Bare, chain: Chain) -> JsonObject:
    """Deploy a chain and delete it; the seconds of the deletion."""
    way = make_way(way_name, api, bare)
    way.apply(chain)
    is_quiet = await_quiet()
    seconds: JsonObject = {"delete_s": {str(MOST): timed(way.delete)}, "quiet": is_quiet}
    if not isinstance(way, Speck):
        await_quiet()
        seconds["release_s"] = {str(MOST): timed(way.release)}
    return seconds


def summary(rows: list[JsonObject]) -> JsonObject:
    """By series: the seconds of each way, and the medians of the ratios."""
    result: JsonObject = {}
    for series in UPLINKS:
        of = [row for row in rows if row["series"] == series]
        seconds = {
            way: interval([row["delete_s"][str(MOST)] for row in of if row["way"] == way])["mean"]
            for way in WAYS
        }
        compared = compare_deletion(of, MOST)
        result[series] = {
            **seconds,
            "floor, sessions too": compared["floor_released_s"]["mean"],
            "speck by that floor": compared["ratio_released"]["median"],
            "one by one by speck": compared["lead"]["median"],
            "one by one by the bare floor": compared["floor_lead"]["median"],
            "busy before": sum(not row["quiet"] for row in of),
        }
    return result


def main() -> int:
    print(json.dumps(summary(measure()), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
