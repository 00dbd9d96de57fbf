-- Why each destination put mail off: for the domains with the most deferrals, their most frequent reasons.
with reasons as (
    select domain, coalesce(class, 'other') as class, coalesce(template, '') as reason, count(*) as number,
        max(done_ns) as last_ns
    from deliveries
    where result in ('deferral', 'mangled') and done_ns >= {begin} and done_ns < {end}
    group by domain, coalesce(class, 'other'), coalesce(template, '')
),
domains as (
    select domain, sum(number) as deferrals, count(*) as kinds, max(last_ns) as last_ns
    from reasons group by domain
    order by deferrals desc, domain
    limit {most}
),
ranked as (
    select r.domain, d.deferrals, d.kinds, r.class, r.reason, r.number, r.last_ns,
        row_number() over (partition by r.domain order by r.number desc, r.reason, r.class) as place
    from reasons as r join domains as d on r.domain = d.domain
)
select domain, deferrals, kinds, class, reason, number, last_ns
from ranked
where place <= {each}
order by deferrals desc, domain, number desc, reason, class
