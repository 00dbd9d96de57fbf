select
  host, queue, messages, ended, waiting, untried, recipients, delivered - stored as delivered, stored, failed, pending, deleted,
  recipients - delivered - failed - pending - deleted as difference,
  repeated, problems
from (
  select
    host, queue,
    count(*) filter (where state <> 'unknown') as messages,
    count(done_ns) as ended,
    count(*) filter (where state = 'waiting') as waiting,
    count(*) filter (where state = 'waiting' and recipients = 0) as untried,
    sum(recipients) as recipients,
    sum(delivered) as delivered,
    sum(stored) as stored,
    sum(failed) as failed,
    sum(pending) as pending,
    sum(deleted) as deleted,
    sum(repeated) as repeated,
    count(
      coalesce(unknown_message, lost, unsettled, never_tried, recipients_differ, deliveries_differ)
    ) as problems
  from balance
  group by host, queue
) as sums
order by host, queue
