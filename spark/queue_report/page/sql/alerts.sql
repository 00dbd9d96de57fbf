-- The most frequent alerts and warnings, those of the last day first. `queue` is one of the queues that logged it.
with texts as (
    select kind, template, count(*) as lines, count(distinct host || '/' || queue) as queues,
        min(host || '/' || queue) as queue, max(time_ns) as last_ns, min(text) as text
    from alerts
    where time_ns >= {begin} and time_ns < {end}
    group by kind, template
),
ranked as (
    select kind, lines, queues, queue, last_ns, text, row_number() over (
        partition by kind order by last_ns >= {middle} desc, lines desc, last_ns desc, template
    ) as place, sum(lines) over (partition by kind) as total
    from texts
)
select kind, lines, queues, queue, last_ns, text, total
from ranked
where place <= {most}
order by kind, place
