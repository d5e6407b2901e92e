-- What jobs cost: one row for each, of the incarnation that represents it.

create temp table wires as
with newest as (
  select *, epoch_us("at") as us
  from plans
  where epoch_us("at") between getvariable('plans_since_us') and getvariable('until_us')
  qualify row_number() over (partition by engine_job_id, vertex order by us desc) = 1
)
select engine_job_id,
  bool_or(list_contains(ship_strategies, 'HASH')) as keyed,
  bool_or(stateful) as declared,
  coalesce(bool_or(pinned), false) as pinned,
  arg_max_null(source_site, us) as source_site, arg_max_null(source_topic, us) as source_topic,
  arg_max_null(sink_site, us) as sink_site, arg_max_null(sink_topic, us) as sink_topic
from newest
group by engine_job_id;

create temp table chosen as
with located as (
  select job_rates.*, source_topic, sink_topic,
    site is not distinct from
      arg_max_null(site, last_us) over (partition by composition, job_name) as is_here,
    max(last_us) over (partition by composition, job_name) as newest_us,
    coalesce(busy_s >= 1, false) or coalesce(seconds >= 60, false) as has_cost,
    count(*) over alike as incarnations,
    (max(last_us) over alike - min(first_us) over alike) / 1e6 as present_s,
    least(1, sum(seconds) over alike / nullif(present_s, 0)) as covered
  from job_rates
  left join wires using (engine_job_id)
  window alike as (partition by composition, job_name, source_topic, sink_topic)
),
summed as (
  select *,
    sum(in_rate * seconds) over alike as all_in,
    sum(out_rate * seconds) over alike as all_out,
    sum(bytes_in_rate * seconds) over alike as all_bytes_in,
    sum(bytes_out_rate * seconds) over alike as all_bytes_out,
    sum(seconds) filter (in_rate is not null) over alike as in_s,
    sum(seconds) filter (out_rate is not null) over alike as out_s,
    sum(seconds) filter (bytes_in_rate is not null) over alike as bytes_in_s,
    sum(seconds) filter (bytes_out_rate is not null) over alike as bytes_out_s
  from located
  window alike as (partition by composition, job_name, source_topic, sink_topic)
),
-- the newest numbers of each end of a job
numbers as (
  select composition, job_name, role, broker_site as site, topic, records_per_s, counted_s
  from ends
  where job_name is not null and records_per_s is not null
  qualify row_number() over (
    partition by composition, job_name, role, broker_site, topic
    order by last_us desc, counted_s desc) = 1
),
-- the time that records are of, where much was not measured: all time since the job was first seen,
-- or less if by its numbers it ran on unseen
timed as (
  select summed.*,
    case
      when taken.counted_s >= 0.9 * present_s and all_in / nullif(taken.records_per_s, 0) is not null
        and in_s is not null
        then least(present_s, greatest(in_s, all_in / taken.records_per_s))
      when sent.counted_s >= 0.9 * present_s and all_out / nullif(sent.records_per_s, 0) is not null
        and out_s is not null
        then least(present_s, greatest(out_s, all_out / sent.records_per_s))
      else present_s
    end as by_s
  from summed
  left join wires using (engine_job_id)
  left join numbers as taken on taken.role = 'reader'
    and taken.composition is not distinct from summed.composition
    and taken.job_name = summed.job_name
    and taken.site = wires.source_site and taken.topic = wires.source_topic
  left join numbers as sent on sent.role = 'producer'
    and sent.composition is not distinct from summed.composition
    and sent.job_name = summed.job_name
    and sent.site = wires.sink_site and sent.topic = wires.sink_topic
),
averaged as (
  select *,
    case when covered >= 0.9 and incarnations = 1 then in_rate
      else all_in / case when covered >= 0.9 then in_s else by_s end end as mean_in_rate,
    case when covered >= 0.9 and incarnations = 1 then out_rate
      else all_out / case when covered >= 0.9 then out_s else by_s end end as mean_out_rate,
    case when covered >= 0.9 and incarnations = 1 then bytes_in_rate
      else all_bytes_in / case when covered >= 0.9 then bytes_in_s else by_s end
      end as mean_bytes_in_rate,
    case when covered >= 0.9 and incarnations = 1 then bytes_out_rate
      else all_bytes_out / case when covered >= 0.9 then bytes_out_s else by_s end
      end as mean_bytes_out_rate
  from timed
)
select * exclude (last_us, newest_us, source_topic, sink_topic), newest_us as last_us
from averaged
where is_here
qualify row_number() over (
  partition by composition, job_name
  order by has_cost desc, last_us desc, attempt desc nulls last, engine_job_id) = 1;

create temp table jobs as
with lags as (
  select composition, job_name, arg_max(lag, last_us) as lag
  from ends
  where role = 'reader' and job_name is not null
  group by all
),
joined as (
  select chosen.*, lag, source_site, source_topic, sink_site, sink_topic,
    coalesce(pinned, false) as pinned,
    coalesce(
      declared,
      case when keyed then true when not keyed and checkpoint_bytes <= 1100000 then false end
    ) as stateful,
    case
      when declared is not null then 'declared'
      when keyed then 'its plan has a keyed exchange'
      when checkpoint_bytes <= 1100000
        then 'no keyed exchange, and its checkpoints are no larger than connector state'
      when checkpoint_bytes is null then 'no keyed exchange, and no checkpoint yet'
      else 'no keyed exchange, but large checkpoints'
    end as state_why,
    tier, cores, core_speed, s.cpu as site_cpu, s.busy as site_busy, s.last_us as polled_us,
    coalesce(heap_bytes_per_subtask, 10e6) as subtask_bytes,
    coalesce(heap_per_state_byte, 3) as state_factor
  from chosen
  left join wires using (engine_job_id)
  left join site_use as s on s.site = chosen.site
  left join lags using (composition, job_name)
),
shared as (
  select *,
    coalesce(
      (polled_us - last_us) / 1e6 > greatest(30, 4 * coalesce(clock_s / nullif(pairs, 0), 0)),
      false) as ended,
    case when busy > 0 and cpu is not null then least(1, cpu / busy) end as own_share,
    -- the share of its busy time in which the job had a core
    case
      when own_share is not null then
        case when coalesce(own_share >= 0.5 or cores < subtasks, false) then own_share else 1 end
      when site_busy > 0.5 * cores and site_cpu > 0 then least(1, site_cpu / site_busy)
      else 1
    end as cpu_share
  from joined
),
judged as (
  select *,
    list_filter([
      case when most_pairs < 3 then printf('%d usable pairs of samples', most_pairs) end,
      case when in_rate is null then 'input records are not reported' end,
      case when covered < 0.5
        then printf('measured for %.0f %% of the time since it was first seen', covered * 100) end
    ], lambda text: text is not null) as rate_why,
    rate_why || list_filter([
      case when in_rate * seconds < 20
        then printf('only %.0f input records', in_rate * seconds) end,
      case when busy is null and pairs > 0 then 'busy time is not reported' end,
      case when busy is not null and busy_s < 1
        then printf('busy for %.2f s, less than 1 s', busy_s) end,
      case when busy / nullif(busy + coalesce(back_pressured, 0), 0) < 0.02
        then printf('back-pressured for %.0f %% of the time', back_pressured * 100) end,
      case when spread > 1
        then printf('its cost varies by %.0f %% over the window', spread * 100) end
    ], lambda text: text is not null) as objections
  from shared
),
costed as (
  select *,
    len(objections) = 0 as is_sufficient,
    case when in_rate > 0 then out_rate / in_rate end as selectivity,
    case when len(objections) = 0 then coalesce(cpu, busy * cpu_share) / in_rate end
      as core_s_per_record,
    case when in_rate > 0 then bytes_in_rate / in_rate end as bytes_in_per_record,
    case when out_rate > 0 then bytes_out_rate / out_rate end as bytes_out_per_record,
    case when 1 - coalesce(back_pressured, 0) > 0.1
      then in_rate / (1 - coalesce(back_pressured, 0)) end as observed
  from judged
),
limited as (
  select *,
    case when is_sufficient
      then least(in_rate / (busiest * cpu_share), cores / core_s_per_record) end as by_busy
  from costed
),
described as (
  select *,
    coalesce(lag > 30 * in_rate and by_busy > 1.15 * observed, false) as is_held,
    case
      when is_held then observed
      when is_sufficient then by_busy
      when busy is null and most_pairs >= 3 and back_pressured is not null then observed
    end as true_processing_rate,
    busy is null and true_processing_rate is not null as lower_bound
  from limited
)
select
  job_name, composition, site, tier, engine_job_id, attempt, ended,
  case when is_sufficient then 'sufficient' else 'insufficient' end as evidence,
  objections || list_filter([
    case when ended then 'is no longer running' end,
    case when is_held then 'has a backlog that it does not reduce: its observed rate counts' end,
    case when lower_bound then 'the true rate is a lower bound: busy time is not reported' end,
    case when contended_share > 0.05
      then case when contended_share >= 0.995 then 'the machine was overloaded all the time'
        else printf('the machine was overloaded %.0f %% of the time', contended_share * 100) end end,
    case when cpu_share < 0.95
      then printf('it had a core for %.0f %% of its busy time', cpu_share * 100) end,
    case when core_speed is null
      then 'its site is not calibrated: it is assumed as fast as the reference' end
  ], lambda text: text is not null) as why,
  case
    when is_sufficient and spread_slices >= 5 and spread <= 0.1
      and coalesce(contended_share, 0) <= 0.05
      and (cpu is not null or cpu_share >= 0.95) and core_speed is not null and busy_s >= 5 then 'high'
    when is_sufficient and spread_slices >= 3 and spread <= 0.3
      and coalesce(contended_share, 0) <= 0.3 then 'medium'
    else 'low'
  end as confidence,
  case when len(rate_why) = 0 then 'sufficient' else 'insufficient' end as rate_evidence, rate_why,
  case when len(rate_why) = 0 then coalesce(cpu, busy * cpu_share) * coalesce(core_speed, 1) end
    as reference_cores,
  seconds, covered, row_count - duplicates as samples,
  mean_in_rate as in_rate, mean_out_rate as out_rate, selectivity, core_s_per_record,
  core_s_per_record * coalesce(core_speed, 1) as reference_core_s_per_record,
  true_processing_rate, true_processing_rate * selectivity as true_output_rate,
  per_useful_second(out_rate, busy, busy_s) as "trueOutputProcessingRate",
  rates as tasks, busiest as utilisation, back_pressured, lower_bound,
  contended_share as contended, mean_bytes_in_rate as bytes_in_rate,
  mean_bytes_out_rate as bytes_out_rate, bytes_in_per_record, bytes_out_per_record, restarts, stateful, state_why, checkpoint_bytes as state_bytes,
  state_bytes_per_s,
  subtasks * subtask_bytes + coalesce(checkpoint_bytes, 0) * state_factor as heap_bytes,
  state_bytes_per_s * state_factor as heap_bytes_per_s,
  checkpoint_ms / 1e3 as checkpoint_s, subtasks, spread, pinned,
  source_site, source_topic, sink_site, sink_topic
from described;

create temp table site_loads as
with loads as (
  select site, sum(reference_core_s_per_record * in_rate) as load
  from jobs
  where not ended
  group by site
)
select site_use.*, coalesce(load, 0) as load
from site_use
left join loads using (site);
