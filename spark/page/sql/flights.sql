-- As channels.sql, by bin, for the queues that were busiest.
with samples as (
    select host, queue, local_now, local_limit, remote_now, remote_limit,
        greatest(at_ns, {begin}) as from_ns, least(until_ns, {end}) as to_ns
    from intervals
    where until_ns > at_ns and try_subtract(until_ns, at_ns) < 31622400000000000 and at_ns < {end} and until_ns > {begin}
),
busiest as (
    select host, queue from samples group by host, queue
    order by sum(cast((case when local_now >= local_limit then 1 else 0 end
            + case when remote_now >= remote_limit then 1 else 0 end) as double) * (to_ns - from_ns)) desc,
        sum((cast(local_now as double) + remote_now) * (to_ns - from_ns)) desc, host, queue
    limit {most}
),
placed as (
    select samples.*, div(from_ns - {begin}, {length}) as first_bin, div(to_ns - 1 - {begin}, {length}) as last_bin
    from samples semi join busiest on samples.host = busiest.host and samples.queue = busiest.queue
),
bins as (
    select * from (values {bins}) as t (bin)
),
pieces as (
    select placed.*, first_bin as bin, to_ns - from_ns as ns from placed where first_bin = last_bin
    union all
    select placed.*, bin,
        least(to_ns, {begin} + (bin + 1) * {length}) - greatest(from_ns, {begin} + bin * {length})
    from placed join bins on bin >= first_bin and bin <= last_bin
    where first_bin < last_bin
)
select host, queue, bin,
    cast(sum(cast(ns as double)) / 1000000000 as decimal(28, 9)) as seconds,
    cast(sum(cast(local_now as double) * ns) / 1000000000 as decimal(28, 9)) as local_work,
    max(local_now) as local_peak, max(local_limit) as local_limit, 0 as local_full,
    cast(sum(cast(remote_now as double) * ns) / 1000000000 as decimal(28, 9)) as remote_work,
    max(remote_now) as remote_peak, max(remote_limit) as remote_limit, 0 as remote_full
from pieces
group by host, queue, bin
order by host, queue, bin
