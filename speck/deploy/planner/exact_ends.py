"""Which jobs have to end exactly: all that they have taken is published, and both are reported.

A job that is stopped with a savepoint ends so. One whose engine has died may have taken records for
good whose results are in its last checkpoint only, or whose numbers its readers have not heard of:
it says all of that again before others go on in its place, or it goes on itself at other links.
"""

from __future__ import annotations

from speck.deploy.planner.debts import is_followed
from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.sinks import find_staying_readers, has_outside_reader
from speck.deploy.planner.wiring import Wiring
from speck.model.ids import source_client_id
from speck.model.job import Delivery


def ends_exactly(wiring: Wiring, decision: Decision) -> bool:
    """Whether others go on where the job of a decision ends, or leave what it writes, or it goes on
    itself at other links, or it is removed and what it writes is read on."""
    old, new, situation = decision.old, decision.new, wiring.situation
    if old is None or not situation.conditions.drains:
        return False
    job = (old.run or old).job
    if job.delivery is Delivery.AT_MOST_ONCE or decision.job_name in situation.conditions.leave:
        return False
    if wiring.cuts.find_together(job) or not wiring.leaving.drained_links.isdisjoint(job.port):
        return True
    if new is not None:
        return new.ends != job.ends
    own = source_client_id(situation.installation, decision.job_name, job.source)
    if is_followed(situation, wiring.followers, wiring.first, own):
        return True
    return any(
        find_staying_readers(situation, link) or has_outside_reader(situation, link)
        for link in job.port
    )
