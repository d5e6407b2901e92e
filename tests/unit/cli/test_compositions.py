"""validate, plan, apply, rollback, destroy, history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binders.memory import World
from speck.errors import EngineRefusedError
from tests.unit.cli.conftest import COMPOSITION, Run, Server

FOLDER = Path(__file__).parents[3] / "compositions"


def engine(site: str) -> str:
    return f"http://{site}.test:8081"


def test_validate_without_a_service(alone: Run) -> None:
    result = alone("validate", str(FOLDER / "traffic" / "fog.yaml"))
    assert result.exit_code == 0
    assert result.stdout.endswith("fog.yaml: composition traffic, 17 jobs: fine\n")


def test_validate_tells_line_and_path(alone: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(COMPOSITION.replace("  sink_topic: clean", "  sink_topics: clean"))
    result = alone("validate", str(file))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{file}:3: error: jobs[0].sink_topic: missing",
        f"{file}:7: error: jobs[0].sink_topics: unknown field; did you mean sink_topic?",
    ]
    assert result.stderr == f"error: cannot accept {file}: 2 problems\n"


def test_validate_finds_faults_of_the_graph(alone: Run) -> None:
    circular = COMPOSITION.replace("sink_topic: kept", "sink_topic: clean")
    result = alone("validate", "-", "-o", "json", stdin=circular)
    assert result.exit_code == 1
    (report,) = json.loads(result.stdout)["files"]
    assert report["problems"][0]["path"] == "jobs[1].sink_topic"
    assert report["problems"][0]["line"] == 13


def test_validate_what_is_no_yaml_at_all(alone: Run) -> None:
    result = alone("validate", "-", stdin="jobs: [")
    assert result.exit_code == 1
    assert result.stdout.startswith("stdin:")


def test_plan_shows_what_would_change(speck: Run, chain: str) -> None:
    result = speck("plan", chain)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "+ add     clean  edge-a  new job",
        "+ add     keep   cloud   new job",
        "plan: 2 to add, 0 to update, 0 to move, 0 to remove, 0 unchanged (6 operations)",
    ]
    assert speck("jobs", "-o", "json").stdout == '{\n  "jobs": []\n}\n'


def test_every_sign_of_a_plan(speck: Run, chain: str) -> None:
    assert speck("apply", "--yes", chain).exit_code == 0
    moved = COMPOSITION.replace(
        "site: edge-a\n  sink", "site: edge-b\n  source_site: edge-a\n  sink"
    )
    updated = moved.replace("  sink_topic: kept\n", "  sink_topic: kept\n  args: [x]\n")
    third = updated.replace("inputs:", COMPOSITION[COMPOSITION.index("- job_name: keep") :], 1)
    third = third[: third.index("inputs:")].replace("- job_name: keep", "- job_name: keep-2", 1)
    result = speck("plan", "-", stdin=third)
    assert result.exit_code == 0, result.stderr
    starts = [line.split("  ")[0].strip() for line in result.stdout.splitlines()]
    assert {"→ move", "+ add"} <= set(starts)
    assert "edge-a → edge-b" in result.stdout
    only = COMPOSITION[: COMPOSITION.index("- job_name: keep")] + "inputs: []\n"
    removed = speck(
        "plan", "-", "--operations", stdin=only.replace("sink_topic: clean", "sink_topic: x")
    )
    assert "- remove  keep" in removed.stdout
    assert "~ update  clean" in removed.stdout
    assert "[] -> #1 " in removed.stdout


def test_detailed_exitcode(speck: Run, chain: str) -> None:
    assert speck("plan", "--detailed-exitcode", chain).exit_code == 2
    assert speck("apply", "-y", chain).exit_code == 0
    same = speck("plan", "--detailed-exitcode", chain)
    assert (same.exit_code, same.stdout) == (0, "no changes: 2 jobs as desired\n")
    assert speck("plan", "--detailed-exitcode", "--composition", "chain").exit_code == 0
    assert speck("plan", "--detailed-exitcode", "nothing.yaml").exit_code == 1


def test_plan_as_data(speck: Run, chain: str) -> None:
    answer = json.loads(speck("plan", chain, "-o", "json").stdout)
    assert answer["plan"]["summary"]["add"] == 2
    assert answer["composition"] == "chain"


def test_what_the_service_refuses_is_told_with_lines(speck: Run) -> None:
    elsewhere = COMPOSITION.replace("site: edge-a\n  sink", "site: edge-z\n  sink")
    result = speck("plan", "-", stdin=elsewhere)
    assert result.exit_code == 1
    assert "jobs[0].site (line 4)" in result.stderr
    assert "Traceback" not in result.output


def test_apply_shows_the_plan_and_follows(speck: Run, chain: str) -> None:
    result = speck("apply", "--yes", chain)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == "+ add     clean  edge-a  new job"
    assert result.stdout.splitlines()[-1] == "chain revision 1 is deployed"
    assert "start clean on edge-a: done\n" in result.stderr
    again = speck("apply", chain)  # nothing to ask about
    assert again.stdout.splitlines() == [
        "no changes: 2 jobs as desired",
        "chain revision 1 is deployed",
    ]


def test_apply_asks(speck: Run, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unasked = speck("apply", chain)
    assert unasked.exit_code == 1
    assert "stdin is not a terminal; give --yes" in unasked.stderr
    monkeypatch.setattr("speck.cli.messages.interactive", lambda: True)
    no = speck("apply", chain, stdin="n\n")
    assert no.exit_code == 1
    assert "nothing was changed" in no.stderr
    assert "chain" not in speck("status").stdout
    yes = speck("apply", chain, stdin="y\n")
    assert yes.exit_code == 0


def test_apply_as_data_holds_the_outcome_alone(speck: Run) -> None:
    result = speck("apply", "-y", "-", "-o", "json", stdin=COMPOSITION)
    answer = json.loads(result.stdout)
    assert (answer["revision"], answer["state"]) == (1, "done")
    assert {o["state"] for o in answer["operations"]} == {"done"}
    assert "+ add     clean" in result.stderr


def test_apply_takes_json(speck: Run, tmp_path: Path) -> None:
    file = tmp_path / "empty.json"
    file.write_text('{\t"name": "none", "jobs": []}')
    for words in (["plan", str(file)], ["plan", "-"]):
        result = speck(*words, stdin=file.read_text())
        assert result.exit_code == 0, result.stderr


def test_to_apply_what_is_there_tells_of_no_old_steps(speck: Run, chain: str) -> None:
    assert speck("apply", "-y", chain).exit_code == 0
    for more in ((), ("--no-wait",)):
        again = speck("apply", "-y", *more, chain)
        assert again.exit_code == 0
        assert again.stdout == "no changes: 2 jobs as desired\nchain revision 1 is deployed\n"
        assert ": done" not in again.stderr
    document = json.loads(speck("apply", "-y", "-o", "json", chain).stdout)
    assert (document["state"], document["operations"]) == ("done", [])


def test_no_wait(speck: Run, chain: str, server: Server) -> None:
    result = speck("apply", "-y", "--no-wait", chain)
    assert result.exit_code == 0
    assert "is under way" in result.stdout
    for running in server.service.changes.all_under_way():
        running.over.wait(10)


def test_a_failure_tells_what_failed_and_what_was_skipped(speck: Run, chain: str) -> None:
    faults = World.current().engine(engine("cloud"))
    faults.refuse("submit", 1, EngineRefusedError("cannot start it: no luck"))
    result = speck("apply", "-y", chain)
    assert result.exit_code == 1
    assert "  failed  start keep on cloud: cannot start it: no luck" in result.stderr
    assert "fix the cause and apply again" in result.stderr
    assert "is deployed" not in result.stdout
    mended = speck("apply", "-y", chain)
    assert mended.exit_code == 0
    assert "+ add     keep" in mended.stdout


def test_a_site_that_is_away_blocks(speck: Run, chain: str, server: Server) -> None:
    assert speck("apply", "-y", chain).exit_code == 0
    World.current().engine(engine("cloud")).unreachable = True
    changed = COMPOSITION.replace("  sink_topic: kept\n", "  sink_topic: kept\n  args: [x]\n")
    result = speck("apply", "-y", "-", "--timeout", "0.5", stdin=changed)
    assert result.exit_code == 1
    assert (
        "it continues when the site answers again" in result.stderr
        or "still being changed" in result.stderr
    )
    (running,) = server.service.changes.all_under_way()
    assert speck("cancel", running.change.id).exit_code == 0
    running.over.wait(10)


def test_rollback_and_history(speck: Run, chain: str) -> None:
    changed = COMPOSITION.replace("  sink_topic: kept\n", "  sink_topic: kept\n  args: [x]\n")
    assert speck("apply", "-y", chain).exit_code == 0
    assert speck("apply", "-y", "-", stdin=changed).exit_code == 0
    result = speck("rollback", "chain", "1", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "~ update  keep" in result.stdout
    assert result.stdout.endswith("chain revision 3 is deployed\n")
    document = json.loads(speck("history", "chain", "-o", "json").stdout)
    assert [r["revision"] for r in document["revisions"]] == [3, 2, 1]
    assert [c["state"] for c in document["changes"]] == ["done"] * 3
    assert "REVISION" in speck("history", "chain").stdout
    change = document["changes"][0]
    assert change["cause"] == "rollback"
    document = json.loads(speck("history", change["id"], "-o", "json").stdout)
    assert document["operations"] and document["events"][-1]["message"].endswith("done")
    output = speck("history", change["id"]).stdout
    for operation in document["operations"]:
        assert f"{operation['kind']} " in output
    assert speck("events", "--change", change["id"], "--kind", "change").stdout.count("\n") == 2
    assert speck("rollback", "chain", "9", "--yes").exit_code == 1


def test_destroy(speck: Run, chain: str) -> None:
    assert speck("apply", "-y", chain).exit_code == 0
    assert speck("destroy", "chain").exit_code == 1  # nobody can be asked
    result = speck("destroy", "chain", "--yes")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "composition chain is removed\n"
    assert "- remove  clean  edge-a" in result.stderr
    assert speck("destroy", "chain", "--yes").exit_code == 1


def test_forget_names_what_is_left(speck: Run, chain: str) -> None:
    assert speck("apply", "-y", chain).exit_code == 0
    refused = speck("forget", "composition", "chain")
    assert refused.exit_code == 1
    assert "without --force" in refused.stderr
    assert "engine job" in refused.stderr
    done = speck("forget", "composition", "chain", "--force")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "composition chain is forgotten"
    assert any(line.startswith("left: engine job") and "(clean)" in line for line in lines)
    assert any(line.startswith("left: session speck-") for line in lines)
    assert any(line.startswith("left: artifact ") for line in lines)
    again = speck("forget", "composition", "chain", "--force", "-o", "json")
    assert again.exit_code == 1


def test_destroy_without_drain(speck: Run, chain: str) -> None:
    assert speck("apply", "-y", chain).exit_code == 0
    options = ("--yes", "--drop-queues", "--drain-limit", "0", "-o", "json")
    result = speck("destroy", "chain", *options)
    kinds = {o["kind"] for o in json.loads(result.stdout)["operations"]}
    assert "drain" not in kinds
    assert "cancel" in kinds


WITH_READER = "outputs: [{site: cloud, topic: kept, client_id: q-db}]"


@pytest.fixture
def queued(speck: Run, chain: str) -> str:
    """The chain, applied, with five messages in the queue of a reader outside speck."""
    text = Path(chain).read_text().replace("outputs: [{site: cloud, topic: kept}]", WITH_READER)
    Path(chain).write_text(text)
    assert speck("apply", "-y", chain).exit_code == 0
    World.current().feed("tcp://edge-a.test:1883", "raw", [b"x"] * 5, "sensor")
    World.current().pump()
    return chain


LINE = (
    "! drops the queue of q-db at cloud/kept (at most 5 messages, sent since the session was made):"
    " its reader is outside speck"
)


def test_destroy_drops_queues_only_with_their_own_option(speck: Run, queued: str) -> None:
    refused = speck("destroy", "chain", "--yes")
    assert refused.exit_code == 1
    assert LINE in refused.stderr.splitlines()
    assert refused.stderr.splitlines()[-1] == (
        "error: cannot remove composition chain: it drops a queue, named above; to drop it, use"
        " --drop-queues"
    )
    assert speck("status", "chain").exit_code == 0, "nothing was removed"
    asked = speck("destroy", "chain", "--drop-queues", input="n\n")
    assert asked.exit_code == 1
    drains = "what waits, for 300 s at most; what is left then is dropped"
    assert [line for line in asked.stderr.splitlines() if line.endswith(drains)]
    done = speck("destroy", "chain", "--drop-queues", "--yes")
    assert done.exit_code == 0
    assert LINE.replace("drops", "dropped") in done.stderr.splitlines()


def test_the_result_of_a_destroy_lists_what_it_dropped(speck: Run, queued: str) -> None:
    done = speck("destroy", "chain", "--drop-queues", "--yes", "-o", "json")
    assert done.exit_code == 0
    (queue,) = json.loads(done.stdout)["dropped"]
    assert (queue["reader"], queue["messages"], queue["count"]) == ("q-db", 5, "at_most")


def test_plan_and_apply_name_the_queues_on_their_first_page(speck: Run, queued: str) -> None:
    Path(queued).write_text(Path(queued).read_text().replace(", client_id: q-db", ""))
    plan = speck("plan", queued)
    assert plan.exit_code == 0
    assert LINE in plan.stdout.splitlines()
    operations = speck("plan", "--operations", queued).stdout.splitlines()
    assert operations.count(LINE) == 1
    assert not any(line.startswith("drops the queue") for line in operations)
    assert len(json.loads(speck("plan", "-o", "json", queued).stdout)["plan"]["queues"]) == 1
    refused = speck("apply", "-y", queued)
    assert refused.exit_code == 1
    assert LINE in refused.stdout.splitlines()
    assert "cannot apply this plan to composition chain: it drops a queue" in refused.stderr
    assert speck("apply", "-y", "--drop-queues", queued).exit_code == 0
