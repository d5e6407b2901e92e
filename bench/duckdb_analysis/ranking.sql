-- The jobs that should run at edges, by the WAN bytes that each saves for a core-second there.

create temp table ranking as
with edges as (
  select link, edge, share, is_known,
    -- of edges with the same share the first by name
    row_number() over (partition by link order by share desc, edge) as place
  from origins
  where edge is not null
),
clouds as (select link, share from origins where edge is null),
sources as (
  select *, {'site': source_site, 'topic': source_topic} as source
  from jobs
  where getvariable('composition') is null or composition = getvariable('composition')
),
joined as (
  select sources.* exclude (source),
    case when sources.site = e.edge then true else false end as is_there,
    e.edge,
    case when is_known then e.share end as share,
    case when is_known then coalesce(c.share, 0) end as cloud_share,
    reference_core_s_per_record * in_rate as work,
    coalesce(l.pace, 1) as edge_speed, l.pace is null as is_uncalibrated,
    l.cores as edge_cores, l.slots_free as edge_slots, l.load as edge_load
  from sources
  left join edges as e on e.link = source and e.place = 1
  left join clouds as c on c.link = source
  left join site_loads as l on l.site = e.edge
),
scored as (
  select *,
    case when edge is not null
      then bytes_in_rate * (share - cloud_share) - bytes_out_rate end as wan_bytes_saved_per_s,
    work / edge_speed as edge_core_s_per_s,
    case when edge_core_s_per_s > 0 then wan_bytes_saved_per_s / edge_core_s_per_s end as score,
    edge_load + case when is_there then 0 else work end as new_load,
    0.7 * edge_cores * edge_speed as capacity
  from joined
),
compared as (
  select *, lag(score) over (order by score desc nulls last, composition, job_name) as above
  from scored
),
tied as (
  select *,
    sum(case
      when score is null then above is not null
      when above is null then false
      when above > 0 then score < 0.99 * above
      else score < above / 0.99
    end::int) over (order by score desc nulls last, composition, job_name) as tie
  from compared
)
select
  row_number() over (
    order by tie, case when stateful then 2 when stateful is null then 1 else 0 end,
      score desc nulls last, composition, job_name) as rank,
  job_name, composition, site, edge, wan_bytes_saved_per_s, edge_core_s_per_s, score, stateful,
  case
    when score is null then 'low'
    when not is_uncalibrated then confidence
    when confidence = 'high' then 'medium'
    else 'low'
  end as confidence,
  list_filter([
    case when is_there then printf('runs at %s, where its data is produced', edge) end,
    case when wan_bytes_saved_per_s > 0 and edge is not null
      then printf('sends %.0f B/s of the %.0f B/s that it receives from %s',
        bytes_out_rate, bytes_in_rate * share, edge) end,
    case when score is not null then printf('saves %.0f WAN bytes per core-second', score) end,
    case when not stateful then 'stateless: ' || state_why end
  ], lambda text: text is not null) as reasons,
  list_filter([
    case when ended and evidence = 'sufficient' then 'is no longer running' end,
    case when evidence <> 'sufficient'
      then 'insufficient: ' || array_to_string(why, '; ') end,
    case when edge is null then 'its input does not come from an edge' end,
    case when wan_bytes_saved_per_s is null and edge is not null then
      case when share is not null then 'its bytes are not reported'
        else 'the shares of sites in its input are unknown' end end,
    case when share < 0.995
      then printf('only %.0f %% of its input comes from %s', share * 100, edge) end,
    case when wan_bytes_saved_per_s <= 0 then
      case when share < 0.995
        then printf('%.0f B/s more would cross between sites', abs(wan_bytes_saved_per_s))
        else printf('it sends %.0f B/s more than it receives', abs(wan_bytes_saved_per_s)) end end,
    case when pinned and not is_there then 'pinned' end,
    case when not is_there and edge_slots < subtasks
      then printf('%s has %d free slots', edge, edge_slots) end,
    case when new_load > capacity
      then printf(
        'over the capacity of %s: %.2f of %.2f reference core-seconds per second',
        edge, new_load, capacity) end,
    case when not is_there and stateful
      then printf('stateful: a move transfers %d bytes', coalesce(state_bytes, 0)) end,
    case when not is_there and stateful is null then 'it is unknown whether it keeps state' end
  ], lambda text: text is not null) as against
from tied;
