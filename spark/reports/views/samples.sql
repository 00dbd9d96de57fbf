-- Deliveries in flight and their limits, by channel: how long (ns) each combination lasted within the window. An
-- interval whose end is before its start, or more than a year after it, counts nowhere: the clock was set.
with stretches as (
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    greatest(at_ns, :since) as from_ns, least(until_ns, :until) as to_ns
  from intervals
  where until_ns > at_ns and try_subtract(until_ns, at_ns) <= 31622400000000000
),
combinations as (
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    sum(cast(to_ns - from_ns as decimal(28, 0))) as ns
  from stretches
  where from_ns < to_ns
  group by host, queue, local_now, local_limit, remote_now, remote_limit
)
select host, queue, 'local' as channel, cast(local_now as bigint) as now, cast(local_limit as bigint) as allowed, ns
from combinations
where local_now is not null
union all
select host, queue, 'remote' as channel, cast(remote_now as bigint) as now, cast(remote_limit as bigint) as allowed, ns
from combinations
where remote_now is not null
