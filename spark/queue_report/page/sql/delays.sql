-- Queue time and delivery time (ns) of deliveries that succeeded, by bin; {bin} is a constant for all of them together.
select bin, count(*) as deliveries,
    percentile_disc(0.5) within group (order by queue) as queue_p50_ns,
    percentile_disc(0.9) within group (order by queue) as queue_p90_ns,
    percentile_disc(0.99) within group (order by queue) as queue_p99_ns,
    max(queue) as queue_max_ns,
    percentile_disc(0.5) within group (order by delivery) as delivery_p50_ns,
    percentile_disc(0.9) within group (order by delivery) as delivery_p90_ns,
    percentile_disc(0.99) within group (order by delivery) as delivery_p99_ns,
    max(delivery) as delivery_max_ns
from (
    select {bin} as bin, try_subtract(start_ns, birth_ns) as queue,
        try_subtract(done_ns, start_ns) as delivery
    from deliveries where result = 'success' and done_ns >= {begin} and done_ns < {end}
) as times
group by bin
order by bin
