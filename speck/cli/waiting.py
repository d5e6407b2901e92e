"""Waits for what the service does in the background."""

from __future__ import annotations

import time

from speck.cli.messages import say
from speck.cli.pauses import growing
from speck.client import Client
from speck.errors import PermanentError
from speck.model.values import JsonObject


def await_analysis(service: Client, analysis_id: str) -> JsonObject:
    """Wait until the analysis is done and return it; its steps are printed on stderr, and Ctrl-C
    cancels it. Raises PermanentError when it failed."""
    pauses = growing()
    step: str | None = None
    former: str | None = None
    try:
        while (analysis := service.analysis(analysis_id))["state"] == "running":
            progress, waits_for = analysis.get("progress"), analysis.get("waits_for")
            if progress and progress["step"] != step:
                step = progress["step"]
                say(f"{step} ({progress['done'] + 1} of {progress['of']})")
            elif waits_for and waits_for != former:
                former = waits_for
                say(f"waiting for analysis {former} to end")
            time.sleep(next(pauses))
    except KeyboardInterrupt:
        service.cancel_analysis(analysis_id)
        raise
    if analysis["state"] != "done" or analysis.get("error"):  # its result may be damaged
        raise PermanentError(analysis["error"] or f"cannot analyse: it was {analysis['state']}")
    return analysis
