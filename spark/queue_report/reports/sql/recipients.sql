select
  coalesce(sum(case when result = 'success' then cast(bytes as decimal(28, 0)) end), 0) as sbytes,
  count_if(result <> 'deferral') as mess,
  count(*) as tries,
  seconds(sum(xdelay)) as xdelay,
  recipient
from ended_deliveries
group by recipient
order by mess desc, tries desc, xdelay desc, recipient
