-- The intervals within the window, from from_ns to to_ns. One whose end is before its start, or more than a year after
-- it, counts nowhere: the clock was set.
select
  host, queue, local_now, local_limit, remote_now, remote_limit,
  greatest(at_ns, :since) as from_ns, least(until_ns, :until) as to_ns
from intervals
where until_ns > at_ns
  and try_subtract(until_ns, at_ns) <= 31622400000000000
  and greatest(at_ns, :since) < least(until_ns, :until)
