with placed as (
  select result, bytes, xdelay, substring_index(recipient, '@', -1) as host
  from ended_deliveries
)
select
  coalesce(sum(case when result = 'success' then cast(bytes as decimal(28, 0)) end), 0) as sbytes,
  count_if(result <> 'deferral') as mess,
  count(*) as tries,
  seconds(sum(xdelay)) as xdelay,
  host
from placed
group by host
order by mess desc, tries desc, xdelay desc, host
