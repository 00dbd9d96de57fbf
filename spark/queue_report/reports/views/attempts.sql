-- All deliveries: those that have ended, and those in flight (done_ns and result are null).
-- settled: it was a success or a failure. stored: the success was that it is stored for an on-demand domain. place: the order of a message's attempts.
select
  host, queue, key, channel, recipient, domain, start_ns, done_ns, result,
  result in ('success', 'failure') as settled,
  result = 'success' and startswith(reason, 'stored_for_') as stored,
  cast(start_ns as decimal(38, 0)) * 1000000000000000000 + delivery as place
from deliveries
union all
select
  host, queue, key, channel, recipient, domain, start_ns,
  cast(null as bigint) as done_ns, cast(null as string) as result,
  false as settled,
  false as stored,
  cast(start_ns as decimal(38, 0)) * 1000000000000000000 + delivery as place
from pending
where what = 'delivery'
