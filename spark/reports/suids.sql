-- Who has only messages that have not ended is not listed, as in qmailanalog.
with sent as (
  select
    uid,
    count(*) as mess,
    sum(cast(bytes as decimal(28, 0))) as bytes,
    sum(cast(bytes as decimal(28, 0)) * successes) as sbytes,
    sum(cast(bytes as decimal(28, 0)) * (successes + failures)) as rbytes,
    sum(successes + failures) as recips,
    sum(successes + failures + deferrals) as tries
  from ended_messages
  group by uid
),
took as (
  select uid, sum(xdelay) as xdelay
  from ended_deliveries
  group by uid
)
select
  sent.mess, sent.bytes, sent.sbytes, sent.rbytes, sent.recips, sent.tries,
  seconds(coalesce(took.xdelay, 0)) as xdelay, sent.uid
from sent
left join took on took.uid = sent.uid
order by sent.mess desc, sent.bytes desc, sent.uid
