-- From when to when the log of each queue goes (Unix time, ns).
select host, queue, min(first_ns) as first_ns, max(last_ns) as last_ns
from (
    select host, queue, min(first_ns) as first_ns, max(done_ns) as last_ns from messages group by host, queue
    union all
    select host, queue, min(start_ns), max(coalesce(done_ns, start_ns)) from deliveries group by host, queue
    union all
    select host, queue, min(at_ns), max(until_ns) from intervals group by host, queue
    union all
    select host, queue, min(coalesce(start_ns, first_ns)), max(coalesce(start_ns, first_ns)) from pending
    where what <> 'session'
    group by host, queue
) as ends
group by host, queue
order by host, queue
