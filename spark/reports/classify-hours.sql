with troubles as (
  select
    timestamp_seconds(div(cast(done_ns as decimal(28, 0)) - pmod(done_ns, 3600000000000), 1000000000)) as hour,
    class,
    result
  from deliveries
  where result in ('failure', 'deferral', 'mangled')
)
select
  hour as start,
  class,
  count(*) filter (where result = 'failure') as failures,
  count(*) filter (where result <> 'failure') as deferrals
from troubles
group by hour, class
order by hour, class nulls first
