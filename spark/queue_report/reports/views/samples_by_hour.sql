-- As samples, by hour: its number since 1970.
with pieces as (
  -- Most are within an hour.
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    hour_of(from_ns) as hour,
    cast(try_subtract(to_ns, from_ns) as decimal(28, 0)) as ns
  from observed
  where hour_of(from_ns) = hour_of(to_ns - 1)
  union all
  -- The others are cut at the full hours.
  select
    host, queue, local_now, local_limit, remote_now, remote_limit, hour,
    least(to_ns, cast(hour + 1 as decimal(28, 0)) * 3600000000000)
    - greatest(from_ns, cast(hour as decimal(28, 0)) * 3600000000000) as ns
  from (
    select
      host, queue, local_now, local_limit, remote_now, remote_limit, from_ns, to_ns,
      explode(sequence(first, last)) as hour
    from (
      select *, hour_of(from_ns) as first, hour_of(to_ns - 1) as last
      from observed
    ) as bounds
    where first < last
  ) as hours
),
combinations as (
  select
    host, queue, hour, local_now, local_limit, remote_now, remote_limit,
    sum(cast(ns as decimal(28, 0))) as ns
  from pieces
  group by host, queue, hour, local_now, local_limit, remote_now, remote_limit
)
select
  host, queue, hour, 'local' as channel, cast(local_now as bigint) as now, cast(local_limit as bigint) as allowed, ns
from combinations
where local_now is not null
union all
select
  host, queue, hour, 'remote' as channel, cast(remote_now as bigint) as now, cast(remote_limit as bigint) as allowed, ns
from combinations
where remote_now is not null
