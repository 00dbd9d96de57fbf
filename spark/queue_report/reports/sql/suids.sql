-- Who has only messages that have not ended is not listed, as in qmailanalog.
select
  sum(mess) as mess, sum(bytes) as bytes, sum(sbytes) as sbytes, sum(rbytes) as rbytes, sum(recips) as recips,
  sum(tries) as tries, seconds(sum(xdelay)) as xdelay, uid
from sendings
group by uid
having sum(mess) > 0
order by mess desc, bytes desc, uid
