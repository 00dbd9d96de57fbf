with troubles as (
  select
    hour_of(done_ns) as hour,
    class,
    result
  from deliveries
  where result in ('failure', 'deferral', 'mangled')
)
select
  timestamp_seconds(3600 * hour) as start,
  class,
  count(*) filter (where result = 'failure') as failures,
  count(*) filter (where result <> 'failure') as deferrals
from troubles
group by hour, class
order by hour, class nulls first
