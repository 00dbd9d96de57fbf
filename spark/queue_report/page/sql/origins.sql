-- Who sent the most by any measure: messages, those of the log's last day, bytes, failures, deferrals. {origin} is the
-- sender in lower case, or the uid.
with came as (
    select {origin} as origin, count(*) as messages, count_if(birth_ns >= {middle}) as recent, sum(bytes) as bytes
    from (
        select sender, uid, birth_ns, bytes from messages where birth_ns >= {begin} and birth_ns < {end}
        union all
        select sender, uid, birth_ns, bytes from pending
        where what = 'message' and birth_ns >= {begin} and birth_ns < {end}
    ) as born
    group by {origin}
),
went as (
    select {origin} as origin, count_if(result = 'success') as delivered,
        count_if(result in ('deferral', 'mangled')) as deferred, count_if(result = 'failure') as failed
    from deliveries
    where done_ns >= {begin} and done_ns < {end}
    group by {origin}
),
sums as (
    select coalesce(came.origin, went.origin) as origin, coalesce(messages, 0) as messages,
        coalesce(recent, 0) as recent, coalesce(bytes, 0) as bytes, coalesce(delivered, 0) as delivered,
        coalesce(deferred, 0) as deferred, coalesce(failed, 0) as failed
    from came full join went on came.origin = went.origin
),
ranked as (
    select sums.*,
        row_number() over (order by messages desc, origin) as by_messages,
        row_number() over (order by recent desc, origin) as by_recent,
        row_number() over (order by bytes desc, origin) as by_bytes,
        row_number() over (order by failed desc, origin) as by_failed,
        count(*) over () as origins
    from sums
    where origin is not null
)
select origin, messages, recent, bytes, delivered, deferred, failed, origins
from ranked
where by_messages <= {most} or by_recent <= {most} or (by_bytes <= {few}) or (by_failed <= {few} and failed > 0)
order by recent desc, messages desc, origin
