-- Deliveries in flight and their limit, by channel: how long (ns) each combination lasted.
with combinations as (
  select
    host, queue, local_now, local_limit, remote_now, remote_limit,
    sum(cast(try_subtract(to_ns, from_ns) as decimal(28, 0))) as ns
  from observed
  group by host, queue, local_now, local_limit, remote_now, remote_limit
)
select host, queue, 'local' as channel, cast(local_now as bigint) as now, cast(local_limit as bigint) as allowed, ns
from combinations
where local_now is not null
union all
select host, queue, 'remote' as channel, cast(remote_now as bigint) as now, cast(remote_limit as bigint) as allowed, ns
from combinations
where remote_now is not null
