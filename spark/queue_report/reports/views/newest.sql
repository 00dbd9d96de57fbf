-- One row, ns: the newest stamp of what the tables hold; null where they are empty.
select max(ns) as ns
from (
  select greatest(max(done_ns), max(first_ns)) as ns from messages
  union all
  select greatest(max(done_ns), max(start_ns)) as ns from deliveries
  union all
  select greatest(max(until_ns), max(at_ns)) as ns from intervals
  union all
  select greatest(max(first_ns), max(start_ns)) as ns from pending where what <> 'session'
) as newest_by_table
