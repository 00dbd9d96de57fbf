-- What each sender and uid sent, to be summed by either: a row for each message of ended_messages, and one for each
-- delivery of ended_deliveries, which has the time that it took.
select
  sender, uid, 1 as mess, cast(bytes as decimal(28, 0)) as bytes,
  cast(bytes as decimal(28, 0)) * successes as sbytes,
  cast(bytes as decimal(28, 0)) * (successes + failures) as rbytes,
  successes + failures as recips,
  successes + failures + deferrals as tries,
  cast(0 as decimal(28, 0)) as xdelay
from ended_messages
union all
select sender, uid, 0, 0, 0, 0, 0, 0, xdelay
from ended_deliveries
