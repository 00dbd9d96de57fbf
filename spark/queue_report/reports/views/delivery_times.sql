-- Deliveries that succeeded. hour: in which it ended (hours of Unix time). In nanoseconds: queue is the time from the
-- message's birth to the start, null where the log begins after the birth; delivery is the time from start to end.
select
  domain, hour_of(done_ns) as hour,
  try_subtract(start_ns, birth_ns) as queue,
  try_subtract(done_ns, start_ns) as delivery
from deliveries
where result = 'success'
