-- Who has only messages that have not ended is not listed, as in qmailanalog.
with sent as (
  select
    sender,
    count(*) as mess,
    sum(cast(bytes as decimal(28, 0))) as bytes,
    sum(cast(bytes as decimal(28, 0)) * successes) as sbytes,
    sum(cast(bytes as decimal(28, 0)) * (successes + failures)) as rbytes,
    sum(successes + failures) as recips,
    sum(successes + failures + deferrals) as tries
  from ended_messages
  group by sender
),
took as (
  select sender, sum(xdelay) as xdelay
  from ended_deliveries
  group by sender
)
select
  sent.mess, sent.bytes, sent.sbytes, sent.rbytes, sent.recips, sent.tries,
  seconds(coalesce(took.xdelay, 0)) as xdelay, sent.sender
from sent
left join took on took.sender = sent.sender
order by sent.mess desc, sent.bytes desc, sent.sender
