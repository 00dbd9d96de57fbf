-- All messages: those that have ended, and those that wait (done_ns and outcome are null).
select host, queue, key, sender, bytes, birth_ns, first_ns, id, successes, failures, recipients, done_ns, outcome
from messages
union all
select
  host, queue, key, sender, bytes, birth_ns, first_ns, id, successes, failures, recipients,
  cast(null as bigint) as done_ns, cast(null as string) as outcome
from pending
where what = 'message'
