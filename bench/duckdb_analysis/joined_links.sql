-- Links: their producers and readers, as their brokers reported them and as the plans of jobs name
-- them, and the bytes that cross between sites.

create temp table link_rates as
with reports as (
  select *
  from ends
  where getvariable('composition') is null or composition = getvariable('composition')
  qualify row_number() over (
    partition by composition, broker_site, topic, role, job_name,
      case when job_name is null then client_id end
    order by last_us desc, client_id) = 1
),
ours as (
  select * from jobs
  where not ended
    and (getvariable('composition') is null or composition = getvariable('composition'))
),
planned as (
  select composition, source_site as broker_site, source_topic as topic, 'reader' as role,
    job_name, site as engine_site, in_rate as rate, bytes_in_rate as bytes,
    bytes_in_per_record as per_record
  from ours
  where source_topic is not null
  union all
  select composition, sink_site, sink_topic, 'producer', job_name, site, out_rate, bytes_out_rate,
    bytes_out_per_record
  from ours
  where sink_topic is not null
),
joined as (
  select
    coalesce(p.composition, r.composition) as composition,
    coalesce(p.broker_site, r.broker_site) as broker_site,
    coalesce(p.topic, r.topic) as topic,
    coalesce(p.role, r.role) as role,
    coalesce(p.job_name, r.job_name) as job_name,
    coalesce(p.engine_site, r.engine_site) as engine_site,
    bytes, per_record, client_id, lag, lag_per_s, lag_fit,
    coalesce(records_per_s, rate) as records_per_s
  from planned as p
  full join reports as r
    on r.composition = p.composition and r.broker_site = p.broker_site and r.topic = p.topic
    and r.role = p.role and r.job_name = p.job_name
),
sized as (
  select *,
    coalesce(
      bytes,
      records_per_s * avg(per_record) over (partition by composition, broker_site, topic)
    ) as bytes_per_s,
    job_name is not null and engine_site <> broker_site as crosses
  from joined
)
select composition, broker_site, topic,
  coalesce(list({
    'client_id': client_id, 'job_name': job_name, 'site': engine_site,
    'records_per_s': records_per_s, 'bytes_per_s': bytes_per_s
  }) filter (role = 'producer'), []) as producers,
  coalesce(list({
    'client_id': client_id, 'job_name': job_name, 'site': engine_site,
    'records_per_s': records_per_s, 'bytes_per_s': bytes_per_s,
    'lag': lag, 'lag_per_s': lag_per_s, 'lag_fit': lag_fit
  }) filter (role = 'reader'), []) as readers,
  case when count(*) filter (crosses and bytes_per_s is null) = 0
    then coalesce(sum(bytes_per_s) filter (crosses), 0) end as wan_bytes_per_s
from sized
group by all;
