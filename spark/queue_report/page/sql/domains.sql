-- The recipient domains with the most deferrals and failures.
select domain, delivered, deferred, failed, bytes, delays, delay_sum_ns, delay_max_ns
from (
    select domain,
        count_if(result = 'success') as delivered,
        count_if(result in ('deferral', 'mangled')) as deferred,
        count_if(result = 'failure') as failed,
        sum(case when result = 'success' then bytes end) as bytes,
        count(case when result = 'success' then birth_ns end) as delays,
        sum(case when result = 'success' then cast(try_subtract(done_ns, birth_ns) as decimal(38, 0)) end) as
            delay_sum_ns,
        max(case when result = 'success' then try_subtract(done_ns, birth_ns) end) as delay_max_ns
    from deliveries
    where done_ns >= {begin} and done_ns < {end}
    group by domain
) as sums
where deferred + failed > 0
order by deferred + failed desc, domain
limit {most}
