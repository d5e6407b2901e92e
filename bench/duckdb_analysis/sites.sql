-- What sites have, and what is used of it.

create temp table polls as
select *, epoch_us("at") as us
from sites
where epoch_us("at") between getvariable('since_us') and getvariable('until_us');

create temp table site_use as
with steps as (
  select *,
    (cpu_ms - lag(cpu_ms) over w) / 1e3 as cpu_s,
    (us - lag(us) over w) / 1e6 as clock_s
  from polls
  window w as (partition by site order by us, cpu_ms)
),
polled as (
  select site,
    arg_max(tier, us) as tier, arg_max(cores, us) as cores, arg_max(core_speed, us) as core_speed,
    arg_max(slots_total, us) as slots_total, arg_max(slots_free, us) as slots_free,
    arg_max(uplink_mbps, us) as uplink_mbps,
    avg(host_cpu) filter (coalesce(clock_s > 0, true)) as host_cpu,
    sum(cpu_s) filter (cpu_s >= 0 and clock_s > 0)
      / sum(clock_s) filter (cpu_s >= 0 and clock_s > 0) as cpu,
    (max(us) - min(us)) / 1e6 as seconds,
    max(us) as last_us
  from steps
  group by site
),
-- only the least use of a minute counts: between two collections a heap fills with garbage
minutes as (
  select site, us // 60000000 as minute,
    min(heap_used_bytes) as heap,
    arg_min({'us': us}, {'heap': heap_used_bytes, 'us': us}).us as heap_us,
    arg_max_null(heap_max_bytes, us) as heap_max,
    avg(slots_total - slots_free) as used
  from polls
  where heap_used_bytes is not null
  group by all
),
heaps as (
  select site,
    arg_max_null(heap_max, heap_us) as heap_max_bytes,
    min(heap) as heap_least_bytes,
    arg_min({'us': heap_us}, {'heap': heap, 'us': heap_us}).us as heap_least_us,
    rising_line(heap, (heap_us - getvariable('since_us')) / 1e6) as heap_bytes_per_s,
    rising_line(heap, used) as heap_bytes_per_subtask
  from minutes
  group by site
),
growths as (
  select site, sum(busy_s) as busy_s, sum(state_bytes_per_s) as growth
  from job_rates
  group by site
),
joined as (
  select polled.*, heaps.* exclude (site), growth, busy_s / nullif(seconds, 0) as busy,
    case when growth > 0 and heap_bytes_per_s is not null
      then least(greatest(heap_bytes_per_s / growth, 1), 20) else 3 end as heap_per_state_byte
  from polled
  left join heaps using (site)
  left join growths using (site)
)
select *,
  heap_least_bytes
    + coalesce(growth, 0) * heap_per_state_byte * (last_us - heap_least_us) / 1e6 as heap_bytes
from joined;
