-- The `m` lines of qmailanalog's matchup: messages that ended, born at their `info`. A message without `info` (the log
-- begins later) or without `end` has none. Senders are folded to lower case and stand in angle brackets. qtime: ns from
-- birth to end.
select
  host, queue, key, info_ns as birth_ns, done_ns, bytes, successes, failures, deferrals,
  lower('<' || sender || '>') as sender, qp, uid,
  cast(done_ns as decimal(28, 0)) - info_ns as qtime
from messages
where bytes is not null and outcome <> 'lost'
