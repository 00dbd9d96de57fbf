-- The queue at {at}: by age, by domain, by the reason of the last deferral, and the oldest messages. part says which.
--
-- A message waits from its birth (older than the log: its first line) until its end. A recipient waits until its latest
-- delivery has succeeded or failed. The log names a recipient when its first delivery starts; a message with no
-- recipient that is known to wait counts as one of the domain (not yet tried).
with queued as (
    select host, queue, key, id, sender, coalesce(birth_ns, first_ns) as born_ns,
        div({at} - greatest(coalesce(birth_ns, first_ns), {floor}), 60000000000) as minutes
    from (
        select host, queue, key, id, sender, birth_ns, first_ns from messages where done_ns > {at}
        union all
        select host, queue, key, id, sender, birth_ns, first_ns from pending where what = 'message'
    ) as known
    where coalesce(birth_ns, first_ns) <= {at}
),
aged as (
    select queued.*,
        case when minutes < 5 then 0 when minutes < 10 then 1 when minutes < 20 then 2 when minutes < 40 then 3
            when minutes < 80 then 4 when minutes < 160 then 5 when minutes < 320 then 6 when minutes < 640 then 7
            when minutes < 1280 then 8 else 9 end as bucket
    from queued
),
tried as (
    select d.host, d.queue, d.key, d.channel, d.recipient, d.domain, d.start_ns, d.delivery,
        d.done_ns is not null and d.done_ns <= {at} and d.result in ('success', 'failure') as settled,
        case when d.result = 'lost' then 'lost'
            when d.done_ns is null or d.done_ns > {at} then 'flying'
            when d.result in ('deferral', 'mangled') then 'deferred' else '' end as state,
        coalesce(d.class, '') as class, coalesce(d.template, '') as reason
    from (
        select host, queue, key, channel, recipient, domain, start_ns, delivery, done_ns, result, class, template
        from deliveries
        union all
        select host, queue, key, channel, recipient, domain, start_ns, delivery, null, null, null, null
        from pending where what = 'delivery'
    ) as d
    semi join queued as w on d.key = w.key and d.host = w.host and d.queue = w.queue
    where d.start_ns <= {at}
),
latest as (
    select * from (
        select tried.*,
            row_number() over (
                partition by host, queue, key, channel, recipient order by start_ns desc, delivery desc
            ) as place,
            max(case when state = 'deferred' then start_ns end)
                over (partition by host, queue, key, channel, recipient) as deferred_ns
        from tried
    ) as ranked
    where place = 1 and not settled
),
undone as (
    select w.host, w.queue, w.key, w.id, w.sender, w.born_ns, w.bucket,
        coalesce(l.domain, '(not yet tried)') as domain,
        coalesce(l.state, 'untried') as state, coalesce(l.class, '') as class, coalesce(l.reason, '') as reason
    from aged as w left join latest as l on l.key = w.key and l.host = w.host and l.queue = w.queue
),
domains as (
    select domain, count(*) as recipients, count(distinct concat(host, '/', queue, '/', key)) as messages,
        min(born_ns) as oldest_ns,
        count_if(bucket = 0) as b0, count_if(bucket = 1) as b1, count_if(bucket = 2) as b2, count_if(bucket = 3) as b3,
        count_if(bucket = 4) as b4, count_if(bucket = 5) as b5, count_if(bucket = 6) as b6, count_if(bucket = 7) as b7,
        count_if(bucket = 8) as b8, count_if(bucket = 9) as b9
    from undone group by domain
),
reasons as (
    select state, class, reason, count(*) as recipients,
        count(distinct concat(host, '/', queue, '/', key)) as messages, count(distinct domain) as domains,
        min(born_ns) as oldest_ns, min(domain) as domain
    from undone group by state, class, reason
),
oldest as (
    select host, queue, key, id, sender, born_ns from aged order by born_ns, host, queue, key limit {few}
)
select 'all' as part, '' as domain, '' as state, '' as class, '' as reason, '' as host, '' as queue, 0 as id,
    '' as sender, count(*) as recipients, count(*) as messages, 0 as domains, min(born_ns) as oldest_ns,
    count_if(bucket = 0) as b0, count_if(bucket = 1) as b1, count_if(bucket = 2) as b2, count_if(bucket = 3) as b3,
    count_if(bucket = 4) as b4, count_if(bucket = 5) as b5, count_if(bucket = 6) as b6, count_if(bucket = 7) as b7,
    count_if(bucket = 8) as b8, count_if(bucket = 9) as b9
from aged
union all
select 'recipients', '', '', '', '', '', '', 0, '', count(*), 0, count(distinct domain), null,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0
from undone
union all
select * from (
    select 'domain', domain, '', '', '', '', '', 0, '', recipients, messages, 1, oldest_ns,
        b0, b1, b2, b3, b4, b5, b6, b7, b8, b9
    from domains order by recipients desc, domain limit {most}
) as d
union all
select * from (
    select 'reason', domain, state, class, reason, '', '', 0, '', recipients, messages, domains, oldest_ns,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    from reasons order by recipients desc, state, class, reason limit {most}
) as r
union all
select 'oldest', min(r.domain), min(r.state), min(r.class), min(r.reason), r.host, r.queue, r.id, min(r.sender),
    count(*), 1, count(distinct r.domain), min(r.born_ns), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
from undone as r join oldest as o on r.key = o.key and r.host = o.host and r.queue = o.queue
group by r.host, r.queue, r.key, r.id
