-- As channels.sql, by bin, for the queues of one host.
with placed as (
    select host, queue, local_now, local_limit, remote_now, remote_limit,
        greatest(at_ns, {begin}) as from_ns, least(until_ns, {end}) as to_ns,
        explode(sequence(
            div(greatest(at_ns, {begin}) - {begin}, {length}), div(least(until_ns, {end}) - 1 - {begin}, {length})
        )) as bin
    from intervals
    where until_ns > at_ns and try_subtract(until_ns, at_ns) < 31622400000000000 and at_ns < {end}
      and until_ns > {begin}
),
pieces as (
    select host, queue, bin, local_now, local_limit, remote_now, remote_limit,
        least(to_ns, {begin} + (bin + 1) * {length}) - greatest(from_ns, {begin} + bin * {length}) as ns
    from placed
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
