-- The ends of links: what producers sent and readers took, and how far readers lag.

create temp table ends as
with reports as (
  select *, epoch_us("at") as us
  from links
  where epoch_us("at") between getvariable('since_us') and getvariable('until_us')
),
steps as (
  select *,
    (us - lag(us) over w) / 1e6 as clock_s,
    messages - lag(messages) over w as sent,
    lag(us) over w is not null and epoch is not distinct from lag(epoch) over w as is_same
  from reports
  window w as (
    partition by broker_site, topic, role, client_id order by us, epoch, messages)
),
judged as (
  select *,
    is_same and sent >= 0 and clock_s > 0 as good,
    case when coalesce(clock_s > 0, true) then lag end as one_lag,
    (us - getvariable('since_us')) / 1e6 as s
  from steps
),
rated as (
  select broker_site, topic, role, client_id,
    arg_max_null(composition, us) as composition,
    arg_max_null(job_name, us) as job_name,
    arg_max_null(engine_site, us) as engine_site,
    sum(sent) filter (good) / nullif(sum(clock_s) filter (good), 0) as records_per_s,
    sum(clock_s) filter (good) as counted_s,
    arg_max(one_lag, us) as lag,
    regr_slope(one_lag, s) as lag_per_s,
    regr_r2(one_lag, s) as lag_fit,
    max(us) as last_us
  from judged
  group by all
)
-- each poll of a broker reports all its ends: one that is missing exists no longer
select *
from rated
qualify max(last_us) over (partition by broker_site) - last_us <= 30 * 1000000;
