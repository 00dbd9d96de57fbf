-- As samples, by hour: its number since 1970.
with pieces as (
  -- Most are within an hour. hour_ns: its start.
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    from_ns - pmod(from_ns, 3600000000000) as hour_ns,
    cast(try_subtract(to_ns, from_ns) as decimal(28, 0)) as ns
  from observed
  where pmod(from_ns, 3600000000000) + try_subtract(to_ns, from_ns) <= 3600000000000 and from_ns >= 0
  union all
  -- The others, and those before 1970, are cut at the full hours.
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    cast(hour as decimal(28, 0)) * 3600000000000 as hour_ns,
    least(to_ns, cast(hour + 1 as decimal(28, 0)) * 3600000000000)
    - greatest(from_ns, cast(hour as decimal(28, 0)) * 3600000000000) as ns
  from (
    select
      host, queue, local_now, local_limit, remote_now, remote_limit, from_ns, to_ns,
      explode(sequence(
        div(cast(from_ns as decimal(28, 0)) - pmod(from_ns, 3600000000000), 3600000000000),
        div(cast(to_ns as decimal(28, 0)) - 1 - pmod(to_ns - 1, 3600000000000), 3600000000000)
      )) as hour
    from observed
    where pmod(from_ns, 3600000000000) + try_subtract(to_ns, from_ns) > 3600000000000 or from_ns < 0
  ) as hours
),
combinations as (
  select
    host, queue, div(hour_ns, 3600000000000) as hour, local_now, local_limit, remote_now, remote_limit,
    sum(cast(ns as decimal(28, 0))) as ns
  from pieces
  group by host, queue, hour_ns, local_now, local_limit, remote_now, remote_limit
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
