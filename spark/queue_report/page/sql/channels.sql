-- Deliveries in flight against their limits, by queue; an interval counts for what of it is in the window. An interval
-- of more than a year, or with its end before its start, is left out: the clock was set.
select host, queue, -1 as bin,
    cast(sum(cast(ns as double)) / 1000000000 as decimal(28, 9)) as seconds,
    cast(sum(cast(local_now as double) * ns) / 1000000000 as decimal(28, 9)) as local_work,
    max(local_now) as local_peak, max(local_limit) as local_limit,
    cast(sum(cast(case when local_now >= local_limit then ns else 0 end as double)) / 1000000000 as decimal(28, 9))
        as local_full,
    cast(sum(cast(remote_now as double) * ns) / 1000000000 as decimal(28, 9)) as remote_work,
    max(remote_now) as remote_peak,
    max(remote_limit) as remote_limit,
    cast(sum(cast(case when remote_now >= remote_limit then ns else 0 end as double)) / 1000000000 as decimal(28, 9))
        as remote_full
from (
    select host, queue, local_now, local_limit, remote_now, remote_limit,
        least(until_ns, {end}) - greatest(at_ns, {begin}) as ns
    from intervals
    where until_ns > at_ns and try_subtract(until_ns, at_ns) < 31622400000000000 and at_ns < {end}
      and until_ns > {begin}
) as samples
group by host, queue
order by host, queue
