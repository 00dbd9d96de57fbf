with sums as (
  select
    host, queue, channel,
    sum(ns) as ns,
    sum(cast(now as decimal(28, 0)) * ns) as work,
    max(now) as peak,
    max(allowed) as allowed,
    sum(case when now >= allowed then ns else 0 end) as at_limit
  from samples
  group by host, queue, channel
)
select
  host, queue, channel,
  seconds(ns) as seconds,
  quotient(work, ns) as average,
  peak,
  allowed as `limit`,
  seconds(at_limit) as at_limit,
  quotient(100 * at_limit, ns) as at_limit_percent
from sums
order by host, queue, channel
