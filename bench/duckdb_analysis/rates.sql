-- The rates of each incarnation, from the rows of `tasks`.
--
-- A pair is a row and the one before it in its series (the counters of one subtask). Pairs are
-- summed by series, slice of the window and length (`stride`: quarter octaves of seconds), these by
-- series, then by task, then by incarnation.

create temp table slices as
with samples as (
  select * exclude ("at", busy_ms, idle_ms, back_pressured_ms, cpu_ms),
    epoch_us("at") as us,
    number_of(busy_ms) as busy_ms,
    number_of(idle_ms) as idle_ms,
    number_of(back_pressured_ms) as back_ms,
    number_of(cpu_ms) as cpu_ms
  from tasks
  where epoch_us("at") between getvariable('since_us') and getvariable('until_us')
),
steps as (
  select *,
    lag(us) over w is null as is_first,
    (us - lag(us) over w) / 1e6 as clock,
    busy_ms - lag(busy_ms) over w as d_busy,
    idle_ms - lag(idle_ms) over w as d_idle,
    back_ms - lag(back_ms) over w as d_back,
    cpu_ms - lag(cpu_ms) over w as d_cpu,
    records_in - lag(records_in) over w as d_records_in,
    records_out - lag(records_out) over w as d_records_out,
    bytes_in - lag(bytes_in) over w as d_bytes_in,
    bytes_out - lag(bytes_out) over w as d_bytes_out,
    restarts - lag(restarts) over w as d_restarts
  from samples
  window w as (
    partition by engine_job_id, vertex, subtask
    order by us, busy_ms, idle_ms, back_ms, records_in, records_out, bytes_in, bytes_out, restarts)
),
pairs as (
  select *,
    not is_first and clock = 0 as is_duplicate,
    -- a counter that falls and a restart both mean that counting began again within the pair
    not is_first and clock > 0 and (
      coalesce(d_restarts, 0) <> 0
      or coalesce(
        least(
          d_busy, d_idle, d_back, d_cpu, d_records_in, d_records_out, d_bytes_in, d_bytes_out) < 0,
        false)) as is_reset,
    coalesce(number_of(host_cpu) > 0.6, false) as is_contended,
    case
      when is_long() then begin_of_unit(us)
      else us
    end as counted_at
  from steps
),
judged as (
  select *, not (is_first or is_duplicate or is_reset) as good from pairs
),
sized as (
  select *,
    slice_of(counted_at) as slice,
    case when good then cast(round(log2(clock) * 4) as int) end as stride
  from judged
)
select
  composition, job_name, site, engine_job_id, attempt, vertex, subtasks, is_source, is_sink,
  subtask, slice, stride,
  count(*) as row_count,
  count(*) filter (good) as pairs,
  count(*) filter (is_duplicate) as duplicates,
  count(*) filter (is_reset) as resets,
  count(*) filter (busy_ms is null and not is_duplicate) as nan,
  count(*) filter (good and is_contended) as contended,
  sum(clock) filter (good) as clock_s,
  sum(clock) filter (good and is_contended) as contended_s,
  sum(clock) filter (good and d_busy + d_idle + d_back is not null) as agreed_clock_s,
  sum(d_busy + d_idle + d_back) filter (good) / 1e3 as reported_s,
  sum(clock) filter (good and d_busy is not null) as busy_clock_s,
  sum(d_busy) filter (good) / 1e3 as busy_s,
  sum(clock) filter (good and d_cpu is not null) as cpu_clock_s,
  sum(d_cpu) filter (good) / 1e3 as cpu_s,
  sum(clock) filter (good and d_back is not null) as back_clock_s,
  sum(d_back) filter (good) / 1e3 as back_s,
  sum(clock) filter (good and d_records_in is not null) as in_clock_s,
  sum(d_records_in) filter (good) as records_in,
  sum(clock) filter (good and d_records_out is not null) as out_clock_s,
  sum(d_records_out) filter (good) as records_out,
  sum(clock) filter (good and d_bytes_in is not null) as bytes_in_clock_s,
  sum(d_bytes_in) filter (good) as bytes_in,
  sum(clock) filter (good and d_bytes_out is not null) as bytes_out_clock_s,
  sum(d_bytes_out) filter (good) as bytes_out,
  min(us) as first_us,
  max(us) as last_us,
  min(restarts) as least_restarts,
  max(restarts) as most_restarts,
  newest_of(checkpoint_bytes, us) as checkpoint_bytes,
  newest_of(checkpoint_ms, us) as checkpoint_ms
from sized
group by all;

create temp table task_rates as
with lengths as (
  select *,
    sum(pairs) over (partition by engine_job_id, vertex, subtask order by stride) as pairs_so_far,
    sum(pairs) over (partition by engine_job_id, vertex, subtask) as all_pairs,
    clock_s / nullif(pairs, 0) as mean_s
  from slices
),
-- the usual interval is that of the median pair; a gap is longer than three of them
usual as (
  select *,
    min(case when 2 * pairs_so_far >= all_pairs then mean_s end)
      over (partition by engine_job_id, vertex, subtask) as usual_s
  from lengths
),
series as (
  select
    composition, job_name, site, engine_job_id, attempt, vertex, subtasks, is_source, is_sink,
    subtask,
    sum(row_count) as row_count, sum(pairs) as pairs, sum(duplicates) as duplicates,
    sum(resets) as resets, sum(nan) as nan, sum(contended) as contended,
    coalesce(sum(pairs) filter (mean_s > 3 * usual_s), 0) as gaps,
    sum(clock_s) as clock_s, sum(contended_s) as contended_s,
    sum(reported_s) / sum(agreed_clock_s) as told,
    sum(busy_s) as busy_s, sum(busy_clock_s) as busy_clock_s,
    sum(cpu_s) as cpu_s, sum(cpu_clock_s) as cpu_clock_s,
    sum(back_s) as back_s, sum(back_clock_s) as back_clock_s,
    sum(records_in) as records_in, sum(in_clock_s) as in_clock_s,
    sum(records_out) as records_out, sum(out_clock_s) as out_clock_s,
    sum(bytes_in) as bytes_in, sum(bytes_in_clock_s) as bytes_in_clock_s,
    sum(bytes_out) as bytes_out, sum(bytes_out_clock_s) as bytes_out_clock_s,
    min(first_us) as first_us, max(last_us) as last_us,
    max(most_restarts) - min(least_restarts) as restarts,
    newest_of(checkpoint_bytes, last_us) as checkpoint_bytes,
    newest_of(checkpoint_ms, last_us) as checkpoint_ms
  from usual
  group by all
),
-- the time of a subtask is what its thread reports, unless that is off by more than a half
timed as (
  select *, case when told between 0.5 and 1.5 then told else 1 end as ratio from series
),
rated as (
  select *,
    busy_s / nullif(busy_clock_s * ratio, 0) as busy,
    cpu_s / nullif(cpu_clock_s * ratio, 0) as cpu,
    back_s / nullif(back_clock_s * ratio, 0) as back_pressured,
    records_in / nullif(in_clock_s * ratio, 0) as in_rate,
    records_out / nullif(out_clock_s * ratio, 0) as out_rate,
    bytes_in / nullif(bytes_in_clock_s * ratio, 0) as bytes_in_rate,
    bytes_out / nullif(bytes_out_clock_s * ratio, 0) as bytes_out_rate
  from timed
)
select
  composition, job_name, site, engine_job_id, attempt, vertex, subtasks, is_source, is_sink,
  sum(row_count) as row_count, sum(pairs) as pairs, sum(duplicates) as duplicates,
  sum(resets) as resets, sum(nan) as nan, sum(contended) as contended, sum(gaps) as gaps,
  sum(clock_s) as clock_s, sum(contended_s) as contended_s,
  max(pairs) as most_pairs, max(clock_s * ratio) as seconds, sum(busy_s) as busy_s,
  sum_of_all(busy) as busy, sum_of_all(cpu) as cpu, max(back_pressured) as back_pressured,
  sum_of_all(in_rate) as in_rate, sum_of_all(out_rate) as out_rate,
  sum_of_all(bytes_in_rate) as bytes_in_rate, sum_of_all(bytes_out_rate) as bytes_out_rate,
  list({
    'vertex': vertex,
    'subtask': subtask,
    'trueOutputProcessingRate': per_useful_second(out_rate, busy, busy_s)
  }) as rates,
  min(first_us) as first_us, max(last_us) as last_us, max(restarts) as restarts,
  newest_of(checkpoint_bytes, last_us) as checkpoint_bytes,
  newest_of(checkpoint_ms, last_us) as checkpoint_ms
from rated
group by all;

create temp table job_rates as
with incarnations as (
  select
    composition, job_name, site, engine_job_id, attempt,
    sum(row_count) as row_count, sum(pairs) as pairs, sum(duplicates) as duplicates,
    sum(gaps) as gaps, sum(clock_s) as clock_s, sum(contended_s) as contended_s,
    max(seconds) as seconds, max(subtasks) as subtasks, max(most_pairs) as most_pairs,
    sum(busy_s) as busy_s, sum_of_all(busy) as busy, sum_of_all(cpu) as cpu,
    case when count(busy) = count(*) then max(busy / subtasks) end as busiest,
    flatten(list(rates)) as rates,
    max(back_pressured) as back_pressured,
    sum_of_some(is_source, in_rate) as in_rate, sum_of_some(is_sink, out_rate) as out_rate,
    sum_of_some(is_source, bytes_in_rate) as bytes_in_rate,
    sum_of_some(is_sink, bytes_out_rate) as bytes_out_rate,
    min(first_us) as first_us, max(last_us) as last_us, max(restarts) as restarts,
    newest_of(checkpoint_bytes, last_us) as checkpoint_bytes,
    newest_of(checkpoint_ms, last_us) as checkpoint_ms
  from task_rates
  group by all
),
of_slice as (
  select engine_job_id, slice,
    sum(busy_s) as busy_s, sum(busy_clock_s) as busy_clock_s,
    sum(cpu_s) as cpu_s, sum(cpu_clock_s) as cpu_clock_s,
    sum(records_in) filter (is_source) as records_in,
    max(last_us) as last_us, newest_of(checkpoint_bytes, last_us) as state
  from slices
  group by all
),
costs as (
  select engine_job_id,
    case when cpu_clock_s >= 0.99 * busy_clock_s then cpu_s / records_in end as by_cpu,
    busy_s / records_in as by_busy
  from of_slice
  where busy_s >= 0.1 and records_in > 0
),
spreads as (
  -- CPU time if any slice has it, else busy time; they are never mixed
  select engine_job_id,
    case when count(by_cpu) > 0 then stddev_samp(by_cpu) / avg(by_cpu)
      else stddev_samp(by_busy) / avg(by_busy) end as spread,
    case when count(by_cpu) > 0 then count(by_cpu) else count(by_busy) end as spread_slices
  from costs
  group by all
),
growths as (
  select engine_job_id,
    case when count(state) >= 3
      then coalesce(rising_line(state, (last_us - getvariable('since_us')) / 1e6), 0) end
      as state_bytes_per_s
  from of_slice
  group by all
)
select incarnations.*, spread, spread_slices, state_bytes_per_s,
  coalesce(contended_s, 0) / nullif(clock_s, 0) as contended_share
from incarnations
left join spreads using (engine_job_id)
left join growths using (engine_job_id);
