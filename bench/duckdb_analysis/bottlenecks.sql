-- Busy and back-pressured jobs, lagging links, full sites.

create temp table bottlenecks as
with ours as (
  select * from jobs
  where not ended
    and (getvariable('composition') is null or composition = getvariable('composition'))
),
readers as (
  select concat_ws('/', broker_site, topic) as name, unnest(readers, recursive := true)
  from link_rates
),
capacities as (select *, cores * coalesce(pace, 1) as capacity from site_loads)
select 'job' as kind, job_name as name, utilisation as value,
  printf(
    '%s at %s is busy for %.0f %% of the time: it receives %.0f records/s, its limit is %s',
    job_name, site, utilisation * 100, coalesce(in_rate, 0),
    coalesce(printf('%.0f', true_processing_rate), 'unknown')) as why
from ours
where utilisation > 0.8
union all
select 'job', job_name, back_pressured,
  printf(
    '%s at %s is back-pressured for %.0f %% of the time: the broker of its sink (%s, at %s)'
      || ' or the network to it accepts less than the job sends',
    job_name, site, back_pressured * 100, coalesce(sink_topic, 'an unknown topic'),
    coalesce(sink_site, 'an unknown site'))
from ours
where back_pressured > 0.1 and coalesce(utilisation, 0) <= 0.8
union all
select 'link', name, lag_per_s,
  printf(
    '%s lags on %s: %d messages wait, %.1f more each second',
    coalesce(job_name, client_id), name, lag, lag_per_s)
from readers
where lag_fit >= 0.5
  and lag_per_s * getvariable('seconds') > greatest(100, 10 * coalesce(records_per_s, 0))
union all
select 'site', site, load / capacity,
  printf('%s uses %.2f of %.2f reference core-seconds per second', site, load, capacity)
from capacities
where capacity > 0 and load / capacity > 0.7;
