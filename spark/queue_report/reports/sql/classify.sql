select
  class, code,
  count(*) filter (where result = 'failure') as failures,
  count(*) filter (where result <> 'failure') as deferrals,
  count(distinct domain) as domains,
  -- A mangled report has no reason.
  coalesce(min(reason), min(template)) as example
from deliveries
where result in ('failure', 'deferral', 'mangled')
group by class, code
order by count(*) desc, class nulls first, code nulls first
