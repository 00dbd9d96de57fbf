-- One row, ns: the newest stamp of what the tables hold; null where they are empty.
select max(ns) as ns
from (
  select max(greatest(done_ns, first_ns)) as ns from messages
  union all
  select max(greatest(done_ns, start_ns)) as ns from deliveries
  union all
  select max(greatest(until_ns, at_ns)) as ns from intervals
  union all
  select max(greatest(first_ns, start_ns)) as ns from pending
) as newest_by_table
