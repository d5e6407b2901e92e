"""The samples tell the truth they were made from, and hold the faults they say."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.samples import Spec, Truth, generate
from speck.metrics.dataset.schema import TABLES

SPEC = Spec(
    jobs=40,
    sites=5,
    hours=3,
    seed=4,
    silences_per_hour=1,
    restarts_per_hour=1,
    incarnations_per_hour=0.5,
    no_busy=0.1,
    contended=0.1,
)

TASK_RATES = """
with rows as (
  select distinct * from read_parquet('{root}/tasks/**/*.parquet', hive_partitioning=1)),
pairs as (
  select *, lag("at") over w as before,
    lag(busy_ms) over w as busy, lag(records_in) over w as taken,
    lag(records_out) over w as given, lag(bytes_in) over w as inb, lag(bytes_out) over w as outb,
    lag(idle_ms) over w as idle, lag(back_pressured_ms) over w as held
  from rows where not isnan(busy_ms)
  window w as (partition by engine_job_id, restarts, vertex, subtask order by "at"))
select job_name, is_source, is_sink,
  sum(epoch("at" - before)) / count(distinct subtask) as spent,
  sum(busy_ms - busy) / 1000 as busy_s,
  sum(records_in - taken) as took, sum(records_out - given) as gave,
  sum(bytes_in - inb) as inb, sum(bytes_out - outb) as outb,
  (sum(busy_ms - busy) + sum(idle_ms - idle) + sum(back_pressured_ms - held)) / 1000
    / sum(epoch("at" - before)) as accounted
from pairs where busy_ms >= busy and records_in >= taken and host_cpu <= 0.6
  and epoch("at" - before) < 15
group by all
"""


def one(query: str) -> int:
    """The one number that `query` gives."""
    ((number,),) = duckdb.sql(query).fetchall()
    return int(number)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    root = tmp_path_factory.mktemp("samples")
    return root, generate(root, SPEC)


def test_differences_between_looks_give_the_truth(generated: tuple[Path, Truth]) -> None:
    root, truth = generated
    tasks = duckdb.sql(TASK_RATES.format(root=root)).fetchall()
    by_job: dict[str, list[tuple]] = {}
    for name, *row in tasks:
        by_job.setdefault(name, []).append(row)
    with_busy_time = {name for name, job in truth.jobs.items() if job.told_busy}
    assert by_job.keys() == with_busy_time < truth.jobs.keys()
    assert len({job.tasks for job in truth.jobs.values()}) == 3
    for name, rows in by_job.items():
        job = truth.jobs[name]
        source, sink = next(r for r in rows if r[0]), next(r for r in rows if r[1])
        busy = sum(row[3] / row[2] for row in rows) * source[2]
        assert busy / source[4] == pytest.approx(job.core_s_per_record, rel=0.02)
        rate = source[4] / source[2]
        assert rate == pytest.approx(job.in_rate, rel=0.03)
        assert sink[5] / sink[2] / rate == pytest.approx(job.selectivity, rel=0.04)
        assert source[6] / source[4] == pytest.approx(job.bytes_in_per_record, rel=0.01)
        assert sink[7] / sink[5] == pytest.approx(job.bytes_out_per_record, rel=0.01)
        assert all(row[8] == pytest.approx(1, rel=0.01) for row in rows)


def test_the_faults_are_there_as_counted(generated: tuple[Path, Truth]) -> None:
    root, truth = generated
    for name, table in TABLES.items():
        read = f"read_parquet('{root}/{name}/**/*.parquet', hive_partitioning=1)"
        rows = one(f"select count(*) from {read}")
        assert rows == truth.rows[name] > 0
        keys = ", ".join(f'"{column}"' for column in table.key)
        apart = one(f"select count(*) from (select distinct {keys} from {read})")
        assert rows - apart == (truth.faults["duplicates"] if name == "tasks" else 0)
    tasks = f"read_parquet('{root}/tasks/**/*.parquet')"
    nan = one(f"select count(*) from {tasks} where busy_ms is null or isnan(busy_ms)")
    assert nan == truth.faults["nan"] > 0
    resets = one(
        f"select count(distinct (engine_job_id, restarts)) - count(distinct job_name) from {tasks}"
    )
    assert 0 < resets <= truth.faults["resets"]
    contended = one(f"select count(*) from {tasks} where host_cpu > 0.6")
    assert contended >= truth.faults["contended"] > 0
    assert truth.faults["silences"] > 0


def test_the_same_spec_gives_the_same_rows(generated: tuple[Path, Truth], tmp_path: Path) -> None:
    root, truth = generated
    again = generate(tmp_path, SPEC)
    assert again.jobs == truth.jobs
    ours, theirs = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")}
        for folder in (root, tmp_path)
    )
    assert ours == theirs


def test_files_have_the_types_of_their_tables(tmp_path: Path) -> None:
    generate(tmp_path, Spec(jobs=5, sites=2, hours=0.1))
    for table in TABLES.values():
        for file in (tmp_path / table.name).rglob("*.parquet"):
            schema = pq.read_schema(file)
            kinds = {
                name: kind.value_type if pa.types.is_dictionary(kind) else kind
                for name, kind in zip(schema.names, schema.types, strict=True)
            }
            assert kinds == {field.name: field.type for field in table.schema}, file
