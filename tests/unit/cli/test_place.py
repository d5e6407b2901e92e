"""`speck place`: the present and the proposed placement as a table, YAML or JSON, and applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speck.cli import offloading
from speck.client import Client
from speck.model.values import JsonObject
from speck.placement.names import IDEAS
from speck.service.advice import advice_of
from speck.spec.schema import load_composition
from tests.analyses import Given, analysis, describe_measured
from tests.unit.cli.conftest import COMPOSITION, Run, Server

ALL_CLOUD = COMPOSITION.replace(
    "  site: edge-a\n  sink_site: cloud\n", "  site: cloud\n  source_site: edge-a\n", 1
)


@pytest.fixture
def placed(server: Server, speck: Run) -> Run:
    """The chain, all of it in the cloud, and a filter that belongs to the edge."""
    assert speck("apply", "--yes", "-", stdin=ALL_CLOUD).exit_code == 0
    jobs = [
        describe_measured("clean", "cloud", selectivity=0.1, composition="chain"),
        describe_measured("keep", "cloud", 10.0, selectivity=2.0, composition="chain"),
    ]
    server.service.placements.analyses = Given(analysis(jobs, composition="chain"))
    return speck


def test_it_shows_both_placements_and_writes_the_new_one(placed: Run) -> None:
    result = placed("place", "chain", "--detailed-exitcode", "--save", "new.yaml")
    assert result.exit_code == 2, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "chain by milp (analysis a1)"
    (clean,) = [line for line in lines if line.startswith("clean")]
    figures = ["9", "kB/s", "cloud", "21", "kB", "after", "2.3", "s", "-"]
    assert clean.split() == ["clean", "cloud", "→", "edge-a", *figures]
    assert "  clean: at edge-a fewer bytes cross between sites than at cloud" in lines
    assert (
        "cost of the moves: 21 kB, with 2 s of silence of jobs without state (assumed);"
        " paid off after 2.3 s"
    ) in lines
    for column in ("saves", "costs", "paid off", "confidence"):
        assert any(line.startswith(f"{column}: ") for line in lines), "a legend"
    assert "between sites: 10 kB/s → 1 kB/s (90% saved)" in lines
    assert (
        "highest rate: 1000 records/s (limited by the subtasks of clean at cloud)"
        " → 1000 records/s (limited by the subtasks of clean at edge-a)"
    ) in lines
    # 0.1 core-seconds a second of clean and 0.01 of keep; no heap was reported
    (cloud,) = [line for line in lines if line.startswith("cloud")]
    assert cloud.split() == ["cloud", "6%", "0%", "0.11", "0.01", "10", "MB", "-"]
    new = load_composition(Path("new.yaml").read_bytes(), None)
    assert [job.site for job in new.jobs] == ["edge-a", "cloud"]
    assert "`speck apply new.yaml` applies it" in result.stderr
    assert placed("apply", "--yes", "new.yaml").exit_code == 0
    again = placed("place", "chain", "--detailed-exitcode")
    assert again.exit_code == 0, again.stderr


def test_where_it_differs_from_the_ranking_the_table_says_why(placed: Run, server: Server) -> None:
    (given,) = server.service.placements.analyses.analyses
    given["ranking"] = [
        {"job_name": "keep", "composition": "chain", "edge": "edge-a", "score": 7.0, "against": []}
    ]
    document = json.loads(placed("place", "chain", "-o", "json").stdout)
    keep = document["jobs"][1]
    assert keep["why"][0].startswith("the ranking suggests edge-a, but more bytes would be sent")
    table = placed("place", "chain").stdout
    assert table.count(keep["why"][0]) == 1 and "Why\n" in table


def test_an_unknown_policy_is_refused_with_the_choices(placed: Run) -> None:
    result = placed("place", "chain", "--policy", "best")
    assert result.exit_code != 0
    assert "milp, greedy, ranked, lightweight" in result.stderr
    text = placed("place", "--help").stdout
    for name, idea in IDEAS.items():
        assert f"  {name:<13} {idea}" in text


def test_applied_it_is_planned_and_followed_like_any_change(placed: Run, server: Server) -> None:
    result = placed("place", "chain", "--apply", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "→ move    clean  cloud → edge-a" in result.stdout
    assert "chain revision 2 is deployed" in result.stdout
    assert list(Path().glob("*.yaml")) == []
    assert {j.job_name: j.site for j in server.service.jobs.all()}["clean"] == "edge-a"
    result = placed("place", "chain", "--apply", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["proposed"]["moves"]) == (0, [])


def test_it_asks_before_it_applies(placed: Run, server: Server) -> None:
    result = placed("place", "chain", "--apply", stdin="n\n")
    assert result.exit_code != 0
    assert server.service.composition_views.revision("chain") == 1


def test_for_programs_there_is_one_document(placed: Run) -> None:
    document = json.loads(placed("place", "chain", "-o", "json").stdout)
    assert document["proposed"]["moves"][0]["to"] == "edge-a"
    text = placed("place", "chain", "--save", "-").stdout
    assert load_composition(text.encode(), None).jobs[0].site == "edge-a"
    accepted = json.loads(placed("place", "chain", "--apply", "--yes", "-o", "json").stdout)
    assert accepted["state"] == "done"
    assert list(Path().glob("*.yaml")) == []


def rank_clean(server: Server) -> None:
    """The analysis with a ranking, of low confidence since the machine was overloaded."""
    (given,) = server.service.placements.analyses.analyses
    row = {"rank": 1, "job_name": "clean", "site": "cloud", "composition": "chain"}
    row |= {"edge": "edge-a", "wan_bytes_saved_per_s": 9000.0, "edge_core_s_per_s": 0.1}
    row |= {"score": 90_000.0, "stateful": False, "confidence": "low"}
    given["ranking"] = [{**row, "reasons": ["stateless: no state"], "against": []}]
    given["jobs"][0]["contended"] = 1.0


def test_advice_ranks_proposes_and_gives_effect_and_cost(placed: Run, server: Server) -> None:
    rank_clean(server)
    result = placed("advise", "chain", "--analysis", "a1")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "Jobs for the edge"
    assert "  clean: stateless: no state" in lines
    assert "  clean: low confidence: the machine was overloaded all the time" in lines
    assert "between sites: 10 kB/s → 1 kB/s (90% saved)" in lines
    assert any(line.startswith("cost of the moves: 21 kB") for line in lines)
    assert server.service.composition_views.revision("chain") == 1
    advice = json.loads(placed("advise", "chain", "--analysis", "a1", "-o", "json").stdout)
    assert [row["job_name"] for row in advice["ranking"]] == ["clean"]
    for sentence in (*advice["why"], *advice["summary"]):
        if not sentence.startswith("note: "):
            assert sentence in result.stdout
    assert advice["legend"].keys() <= {line.split(":")[0] for line in lines}


def test_advice_is_the_placement_that_place_and_the_autopilot_make(
    placed: Run, server: Server
) -> None:
    rank_clean(server)
    placement = json.loads(placed("place", "chain", "-o", "json").stdout)
    advice = json.loads(placed("advise", "chain", "--analysis", "a1", "-o", "json").stdout)
    assert advice["placement"]["jobs"] == placement["jobs"]
    assert advice["placement"]["repeats"] == placement["id"]
    doubts = advice_of(
        server.service.placements.get(placement["id"]), server.service.placements.analyses.get("a1")
    ).doubts
    assert doubts == ("clean: low confidence: the machine was overloaded all the time",)


def test_advice_is_carried_out_and_saved(placed: Run, server: Server) -> None:
    options = ("advise", "chain", "--analysis", "a1", "--save", "new.yaml", "--apply", "--yes")
    result = placed(*options)
    assert result.exit_code == 0, result.stderr
    assert {j.job_name: j.site for j in server.service.jobs.all()}["clean"] == "edge-a"
    assert load_composition(Path("new.yaml").read_bytes(), None).jobs[0].site == "edge-a"
    again = placed("advise", "chain", "--analysis", "a1")
    assert "nothing would change" in again.stderr


def test_what_is_saved_is_announced_only_if_something_changes(placed: Run) -> None:
    assert placed("apply", "--yes", "-", stdin=COMPOSITION).exit_code == 0
    result = placed("place", "chain", "--save", "new.yaml")
    assert result.exit_code == 0, result.stderr
    assert "nothing would change: no file was written" in result.stderr
    assert not Path("new.yaml").exists()


def test_40_bytes_a_second_move_nothing(placed: Run, server: Server) -> None:
    jobs = [
        describe_measured("clean", "cloud", 1.0, selectivity=0.6, composition="chain")
        | {"stateful": True},
        describe_measured("keep", "cloud", 0.6, composition="chain"),
    ]
    ranking = {"job_name": "clean", "composition": "chain", "edge": "edge-a", "score": 7.0}
    ranking |= {"against": [], "confidence": "high", "reasons": []}
    body = analysis(jobs, composition="chain", ranking=[ranking])
    server.service.placements.analyses = Given(body)
    result = placed("place", "chain", "--detailed-exitcode", "--policy", "ranked")
    assert result.exit_code == 0, result.stderr
    assert (
        "clean: a move would not save what it costs within 1 h, or less than 100 bytes/s: the job"
        " keeps state"
    ) in result.stdout
    every = placed("place", "chain", "--detailed-exitcode", "--policy", "ranked", "--all-moves")
    assert every.exit_code == 2, every.stderr


def test_without_measurements_it_says_what_to_do(speck: Run, server: Server) -> None:
    assert speck("apply", "--yes", "-", stdin=ALL_CLOUD).exit_code == 0
    server.service.placements.analyses = Given()
    result = speck("place", "chain")
    assert result.exit_code == 1
    assert "run `speck analyze chain`" in result.stderr


def test_a_file_that_cannot_be_written_is_named(placed: Run) -> None:
    result = placed("place", "chain", "--save", "missing/new.yaml")
    assert result.exit_code == 1
    assert "cannot write missing/new.yaml: No such file or directory" in result.stderr


def test_the_autopilot_is_switched_on_and_off_and_tells_why(placed: Run, server: Server) -> None:
    assert placed("autopilot", "status", "chain").stdout.splitlines()[0].split() == [
        "autopilot",
        "off",
    ]
    assert placed("autopilot", "log", "chain").stdout == "nothing yet\n"
    result = placed("autopilot", "on", "chain", "--every", "1m", "--agreeing", "3", "-o", "json")
    settings = json.loads(result.stdout)
    assert (settings["on"], settings["every_s"], settings["agreeing"], settings["settle_s"]) == (
        True,
        60,
        3,
        600,
    )
    server.service.autopilots.run_round()  # nobody can analyse here: it says so
    log = placed("autopilot", "log", "chain").stdout
    assert "the autopilot of chain is on: policy milp" in log
    assert placed("autopilot", "off", "chain").exit_code == 0
    kept = server.service.autopilots.get("chain")
    assert (kept.on, kept.every_s, kept.agreeing) == (False, 60, 3), "settings are kept"
    settings = json.loads(
        placed("autopilot", "on", "chain", "--agreeing", "4", "-o", "json").stdout
    )
    assert (settings["on"], settings["every_s"], settings["agreeing"]) == (True, 60, 4)
    assert placed("autopilot", "on", "nothing").exit_code == 1


def test_scale_proposes_subtasks_and_applies_them(placed: Run, server: Server) -> None:
    jobs = [
        describe_measured("clean", "cloud", true_processing_rate=70.0, composition="chain"),
        describe_measured("keep", "cloud", composition="chain"),
    ]
    server.service.placements.analyses = Given(analysis(jobs, composition="chain"))
    result = placed("scale", "chain", "--save", "wide.yaml")
    assert result.exit_code == 0, result.stderr
    (clean,) = [line for line in result.stdout.splitlines() if line.startswith("clean")]
    assert clean.split()[:7] == ["clean", "cloud", "1", "→", "2", "100", "70"]
    assert "parallelism: 2" in Path("wide.yaml").read_text()
    assert placed("scale", "chain", "--apply", "--yes").exit_code == 0
    (job,) = [j for j in server.service.jobs.all() if j.job_name == "clean"]
    assert job.description.parallelism == 2


def test_offload_measures_in_the_cloud_places_and_compares(
    placed: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Given()
    polls = iter(range(100))

    def analyse(client: Client, composition: str | None = None, **_: object) -> JsonObject:
        site = {job.job_name: job.site for job in server.service.jobs.all()}["clean"]
        jobs = [
            describe_measured("clean", site, selectivity=0.1, composition="chain"),
            describe_measured("keep", "cloud", 10.0, selectivity=2.0, composition="chain"),
        ]
        for job, sink in zip(jobs, ("clean", "kept"), strict=True):
            job["sink"] = {"site": "cloud", "topic": sink}
        jobs[1]["source"] = jobs[0]["sink"]
        wan = 10_000.0 if site == "cloud" else 1_000.0
        link = {"composition": "chain", "broker_site": "edge-a", "topic": "raw"}
        link |= {"producers": [], "readers": [], "wan_bytes_per_s": wan}
        made = analysis(jobs, composition="chain", id=f"b{len(given.analyses)}", links=[link])
        given.analyses.append(made)
        return made

    def rates(client: Client, composition: str | None = None) -> list[JsonObject]:
        return [{"job_name": "clean", "at": str(next(polls)), "in_rate": 100.0}]

    first = analyse(Client(server.url))
    server.service.placements.analyses = given
    monkeypatch.setattr(Client, "analyse", analyse)
    monkeypatch.setattr(
        Client, "analysis", lambda _, wanted: next(a for a in given.analyses if a["id"] == wanted)
    )
    monkeypatch.setattr(Client, "rates", rates)
    monkeypatch.setattr(offloading, "sleep", lambda _: None)
    options = ("--policy", "milp", "--window", "1s", "--yes")
    result = placed("offload", "chain", *options)
    assert result.exit_code == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "between sites 10 kB/s 1 kB/s 1 kB/s" in lines
    assert "at the outputs 20 records/s - 20 records/s" in lines
    assert "jobs at edges 0 1 1" in lines
    assert "clean: at edge-a fewer bytes cross between sites than at cloud" in lines
    assert "chain is already where the policy all-cloud wants it" in result.stderr
    again = json.loads(placed("offload", "chain", *options, "-o", "json").stdout)
    assert first["id"] != again["analyses"]["before"] != again["analyses"]["after"]
    sites = {job.job_name: job.site for job in server.service.jobs.all()}
    assert sites == {"clean": "edge-a", "keep": "cloud"}


def test_an_offload_predicts_what_engines_use_besides_their_jobs() -> None:
    """0.3 cores are measured of which a job needs 0.2; it moves to an engine that needs 0.05."""
    sites = [{"name": "cloud", "tier": "cloud"}, {"name": "edge-a", "tier": "edge"}]
    before = {"jobs": [], "links": [], "sites": [{**site, "cpu": None} for site in sites]}
    before["sites"][0]["cpu"], before["sites"][1]["cpu"] = 0.3, 0.05
    placement = {
        "today": {"cores": {"cloud": 0.2, "edge-a": 0.0}},
        "proposed": {"cores": {"cloud": 0.0, "edge-a": 0.4}, "sites": {}, "wan_bytes_per_s": 1.0},
    }
    rows = {row["figure"]: row for row in offloading.compare("c", before, before, placement)}
    assert rows["CPU of cloud engines"]["predicted"] == pytest.approx(0.1)
    assert rows["CPU of edge engines"]["predicted"] == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("rates", "steady"),
    [
        ([100.0, 100.0], False),
        ([1.0, 100.0, 105.0, 95.0], True),
        ([100.0, 150.0, 100.0], False),
        ([0.0, 0.0, 0.0], True),
        ([0.5, 2.0, 0.0], True),
    ],
)
def test_rates_are_steady_when_the_newest_samples_are_close(
    rates: list[float], steady: bool
) -> None:
    assert offloading.is_steady(rates) is steady


@pytest.mark.parametrize(
    "command",
    [
        ("analyze", "chian"),
        ("advise", "chian"),
        ("place", "chian"),
        ("scale", "chian"),
        ("offload", "chian", "--yes"),
        ("autopilot", "status", "chian"),
        ("autopilot", "on", "chian"),
    ],
)
def test_a_misspelt_composition_is_told_with_the_likeliest_one(
    placed: Run, command: tuple[str, ...]
) -> None:
    result = placed(*command)
    assert result.exit_code == 1
    assert "cannot find composition 'chian'; did you mean chain?" in result.stderr
