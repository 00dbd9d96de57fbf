-- As samples, by hour; hour_ns is its start.
with pieces as (
  -- Most are within an hour.
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    try_subtract(from_ns, pmod(from_ns, 3600000000000)) as hour_ns,
    try_subtract(to_ns, from_ns) as ns
  from observed
  where pmod(from_ns, 3600000000000) + try_subtract(to_ns, from_ns) <= 3600000000000
  union all
  -- The others are cut at the full hours.
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    hour * 3600000000000 as hour_ns,
    least(to_ns - hour * 3600000000000, 3600000000000) - greatest(from_ns - hour * 3600000000000, 0) as ns
  from (
    select
      host, queue, local_now, local_limit, remote_now, remote_limit, from_ns, to_ns,
      explode(sequence(
        div(try_subtract(from_ns, pmod(from_ns, 3600000000000)), 3600000000000),
        div(try_subtract(to_ns - 1, pmod(to_ns - 1, 3600000000000)), 3600000000000)
      )) as hour
    from observed
    where pmod(from_ns, 3600000000000) + try_subtract(to_ns, from_ns) > 3600000000000
  ) as hours
),
combinations as (
  select
    host, queue, hour_ns, local_now, local_limit, remote_now, remote_limit,
    sum(cast(ns as decimal(28, 0))) as ns
  from pieces
  group by host, queue, hour_ns, local_now, local_limit, remote_now, remote_limit
)
select
  host, queue, hour_ns, 'local' as channel, cast(local_now as bigint) as now, cast(local_limit as bigint) as allowed, ns
from combinations
where local_now is not null
union all
select
  host, queue, hour_ns, 'remote' as channel,
  cast(remote_now as bigint) as now, cast(remote_limit as bigint) as allowed, ns
from combinations
where remote_now is not null
