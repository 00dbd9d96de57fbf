-- Who has only messages that have not ended is not listed, as in qmailanalog.
with sent as (
  select
    uid,
    count(*) as mess,
    sum(cast(bytes as decimal(38, 0))) as bytes,
    sum(cast(bytes as decimal(38, 0)) * successes) as sbytes,
    sum(cast(bytes as decimal(38, 0)) * (successes + failures)) as rbytes,
    sum(successes + failures) as recips,
    sum(successes + failures + deferrals) as tries
  from ended_messages
  group by uid
),
took as (
  select uid, sum(cast(done_ns - start_ns as decimal(38, 0))) as xdelay
  from ended_deliveries
  group by uid
)
select mess, bytes, sbytes, rbytes, recips, tries, seconds(coalesce(xdelay, 0)) as xdelay, sent.uid
from sent
left join took on took.uid = sent.uid
order by mess desc, bytes desc, uid
