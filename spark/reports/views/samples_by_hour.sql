-- As samples, by hour; hour is its number since 1970.
with stretches as (
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    greatest(at_ns, :since) as from_ns, least(until_ns, :until) as to_ns
  from intervals
  where until_ns > at_ns and try_subtract(until_ns, at_ns) <= 31622400000000000
),
pieces as (
  select
    host, queue, local_now, local_limit, remote_now, remote_limit, from_ns, to_ns,
    explode(sequence(
      div(try_subtract(from_ns, pmod(from_ns, 3600000000000)), 3600000000000),
      div(try_subtract(to_ns - 1, pmod(to_ns - 1, 3600000000000)), 3600000000000)
    )) as hour
  from stretches
  where from_ns < to_ns
),
combinations as (
  select
    host, queue, hour, local_now, local_limit, remote_now, remote_limit,
    sum(
      least(to_ns, cast(hour + 1 as decimal(28, 0)) * 3600000000000)
      - greatest(from_ns, cast(hour as decimal(28, 0)) * 3600000000000)
    ) as ns
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
