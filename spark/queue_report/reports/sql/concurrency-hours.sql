with sums as (
  select
    hour, host, queue, channel,
    sum(ns) as ns,
    sum(cast(now as decimal(28, 0)) * ns) as work,
    max(now) as peak,
    max(allowed) as allowed,
    sum(case when now >= allowed then ns else 0 end) as at_limit
  from samples_by_hour
  group by hour, host, queue, channel
)
select
  timestamp_seconds(3600 * hour) as start, host, queue, channel,
  seconds(ns) as seconds,
  quotient(work, ns) as average,
  peak,
  allowed as `limit`,
  seconds(at_limit) as at_limit,
  quotient(100 * at_limit, ns) as at_limit_percent
from sums
order by hour, host, queue, channel
