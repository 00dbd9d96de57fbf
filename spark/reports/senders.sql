-- Who has only messages that have not ended is not listed, as in qmailanalog.
with sent as (
  select
    sender,
    count(*) as mess,
    sum(cast(bytes as decimal(38, 0))) as bytes,
    sum(cast(bytes as decimal(38, 0)) * successes) as sbytes,
    sum(cast(bytes as decimal(38, 0)) * (successes + failures)) as rbytes,
    sum(successes + failures) as recips,
    sum(successes + failures + deferrals) as tries
  from ended_messages
  group by sender
),
took as (
  select sender, sum(cast(done_ns - start_ns as decimal(38, 0))) as xdelay
  from ended_deliveries
  group by sender
)
select mess, bytes, sbytes, rbytes, recips, tries, seconds(coalesce(xdelay, 0)) as xdelay, sent.sender
from sent
left join took on took.sender = sent.sender
order by mess desc, bytes desc, sender
