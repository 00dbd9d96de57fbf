with ended as (
  select
    domain, result, bytes,
    case when result = 'success' then cast(done_ns as decimal(28, 0)) - birth_ns end as delay
  from deliveries
  where done_ns is not null
)
select
  domain,
  count_if(result = 'success') as delivered,
  coalesce(sum(case when result = 'success' then cast(bytes as decimal(28, 0)) end), 0) as bytes,
  count_if(result in ('deferral', 'mangled')) as deferred,
  count_if(result = 'failure') as bounced,
  quotient(sum(delay), count(delay) * 1000000000) as delay_avg,
  seconds(max(delay)) as delay_max
from ended
group by domain
order by delivered desc, deferred desc, domain
