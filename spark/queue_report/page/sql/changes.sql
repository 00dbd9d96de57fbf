-- The last day of the log beside the day before: deliveries by result, and messages under `received`.
select recent, result, count(*) as number
from (
    select done_ns >= {middle} as recent, case when result = 'mangled' then 'deferral' else result end as result
    from deliveries where done_ns >= {before} and done_ns < {end}
    union all
    select birth_ns >= {middle}, 'received' from messages where birth_ns >= {before} and birth_ns < {end}
    union all
    select birth_ns >= {middle}, 'received' from pending
    where what = 'message' and birth_ns >= {before} and birth_ns < {end}
) as events
group by recent, result
order by recent, result
