-- One round of the search for the edges where data is produced: the links of which all sources are
-- known. Run until nothing is added; `origins` has the share of each edge (null: of no edge).

insert into origins
with edges as (select site from site_use where tier = 'edge'),
open_links as (
  select distinct link from (
    select source as link from hops union all select sink from hops)
  where link not in (select link from origins)
),
ready as (
  select link
  from open_links
  where link.site in (select site from edges)
    or not exists (
      from hops
      where hops.sink = link and hops.source not in (select link from origins))
),
parts as (
  select ready.link as link, o.edge, o.share, o.is_known, bytes
  from ready
  join hops on hops.sink = ready.link
  join origins as o on o.link = hops.source
  where ready.link.site not in (select site from edges)
),
mixed as (
  select link, edge, sum(coalesce(bytes, 0) * share) as bytes,
    bool_and(is_known and bytes is not null) as is_known
  from parts
  group by all
),
counted as (
  select *, count(*) over w as edges, sum(bytes) over w as total,
    bool_and(is_known) over w as all_known
  from mixed
  window w as (partition by link)
)
select link, link.site as edge, 1 as share, true as is_known
from ready
where link.site in (select site from edges)
union all
select link, null, 1, true
from ready
where link.site not in (select site from edges) and link not in (select link from parts)
union all
select link, edge,
  case when edges = 1 then 1 else coalesce(bytes / nullif(total, 0), 0) end,
  edges = 1 or (total > 0 and all_known)
from counted;
