-- When queue-send last crashed, and last lost a daemon, by queue. Deliveries in flight at a crash are lost; the last one
-- that started says when that was, at the earliest.
select host, queue, 'crash' as kind, max(start_ns) as last_ns
from deliveries
where result = 'lost' and start_ns >= {begin} and start_ns < {end}
group by host, queue
union all
select host, queue, 'died', max(time_ns)
from alerts
where kind = 'alert' and text like 'oh no! lost %' and time_ns >= {begin} and time_ns < {end}
group by host, queue
order by kind, last_ns desc, host, queue
