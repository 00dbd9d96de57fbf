-- Failures and deferrals by class and code, the most frequent first.
select coalesce(class, 'other') as class, coalesce(code, '') as code,
    count_if(result = 'failure') as failures,
    count_if(result <> 'failure') as deferrals,
    count(distinct domain) as domains,
    min(reason) as example
from deliveries
where result in ('failure', 'deferral', 'mangled') and done_ns >= {begin} and done_ns < {end}
group by coalesce(class, 'other'), coalesce(code, '')
order by count(*) desc, class, code
limit {most}
