-- The messages that were in the queue at the moment: from its birth (older than the log: from its first line) until its
-- end. minutes: its age, rounded down.
select
  lives.host, lives.queue, lives.key, lives.sender,
  div(cast(moment.ns as decimal(28, 0)) - coalesce(lives.birth_ns, lives.first_ns), 60000000000) as minutes
from lives
cross join moment
where coalesce(lives.birth_ns, lives.first_ns) <= moment.ns
  and (lives.done_ns is null or lives.done_ns > moment.ns)
