-- The `d` lines of qmailanalog's matchup: deliveries that ended; one lost in a crash has none. A mangled report is a
-- deferral for the reason report_mangled. A delivery of a message without `info` counts with 0 bytes, sender `?`, and
-- its own start as birth. A recipient is CHANNEL.RECIPIENT in lower case. xdelay: ns from start to end, ddelay: from
-- birth to end.
with matched as (
  select
    host, queue, key, done_ns, start_ns, qp, uid,
    case when result = 'mangled' then 'deferral' else result end as result,
    case when bytes is not null then info_ns else start_ns end as birth_ns,
    coalesce(bytes, 0) as bytes,
    case when bytes is not null then lower('<' || sender || '>') else '?' end as sender,
    lower(channel || '.' || recipient) as recipient,
    case when result = 'mangled' then 'report_mangled' else reason end as reason
  from deliveries
  where done_ns is not null
)
select
  *,
  cast(done_ns as decimal(28, 0)) - birth_ns as ddelay,
  cast(done_ns as decimal(28, 0)) - start_ns as xdelay
from matched
