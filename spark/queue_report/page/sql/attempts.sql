-- Deliveries that ended, by bin, result and class of the trouble ('' for a success).
select bin, result, class, count(*) as number
from (
    select div(done_ns - {begin}, {length}) as bin,
        case when result = 'mangled' then 'deferral' else result end as result,
        case when result = 'success' then '' else coalesce(class, '') end as class
    from deliveries
    where done_ns >= {begin} and done_ns < {end}
) as ended
group by bin, result, class
order by bin, result, class
