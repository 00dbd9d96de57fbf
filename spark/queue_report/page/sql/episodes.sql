-- The worst times during which a destination was in trouble: what spark/reports/destinations.sql lists, without the
-- mail that it held. Those that go on come first, then the longest; number is how many there are.
--
-- Numbers stand for domain, host and queue while the deliveries are put in order: text would cost most of the time.
with series as (
    -- The questions for which a destination has bad deliveries enough for an episode.
    select sums.domain, sums.host, sums.queue, questions.slow,
        row_number() over (order by sums.domain, sums.host, sums.queue, questions.slow) as series
    from (
        select domain, host, queue, count_if(not answered) as deferred, count_if(answered and not quick) as late
        from answers group by domain, host, queue
    ) as sums
    cross join (values (false), (true)) as questions (slow)
    where case when questions.slow then sums.late else sums.deferred end >= 3
),
judged as (
    select series.series, answers.done_ns, answers.start_ns, answers.id, answers.delivery, answers.network,
        case when series.slow then answers.quick else answers.answered end as good
    from answers
    join series on series.domain = answers.domain and series.host = answers.host and series.queue = answers.queue
    where answers.answered or (not series.slow and not answers.answered)
),
ordered as (
    select series, good, network, done_ns,
        coalesce(lag(good) over in_order, true) as after_good,
        lag(done_ns) over in_order as done_before,
        row_number() over in_order as place
    from judged
    window in_order as (partition by series order by done_ns, start_ns, id, delivery)
),
near as (
    -- Most are good ones after good ones: those are in no episode, and end none.
    select series, good, network, done_ns, place,
        case when after_good or coalesce(try_subtract(done_ns, done_before) > 86400000000000, false) then 1 else 0 end
            as begins
    from ordered
    where not (good and after_good)
),
numbered as (
    select series, good, network, done_ns,
        sum(begins) over (
            partition by series order by place rows between unbounded preceding and current row
        ) as island
    from near
),
islands as (
    select series, min(case when not good then done_ns end) as began_ns,
        max(case when not good then done_ns end) as bad_ns, max(case when good then done_ns end) as good_ns,
        bool_and(good or network) as dead, count_if(not good) as attempts
    from numbered
    group by series, island
    having count_if(not good) >= 3
),
found as (
    select islands.series, islands.began_ns, islands.dead, islands.attempts, newest.ns as newest_ns,
        -- What a day without a bad one ended is over: the log goes on after it.
        coalesce(
            islands.good_ns, case when try_subtract(newest.ns, islands.bad_ns) > 86400000000000 then islands.bad_ns end
        ) as ended_ns
    from islands cross join newest
),
worst as (
    select found.*, count(*) over () as number,
        cast(coalesce(ended_ns, newest_ns) as decimal(38, 0)) - began_ns as lasted_ns
    from found
    where coalesce(ended_ns, newest_ns) >= {begin} and began_ns < {end}
    order by ended_ns is null desc, lasted_ns desc, series, began_ns
    limit {most}
),
named as (
    select series.host, series.queue, series.domain, series.slow, worst.*
    from worst join series on series.series = worst.series
)
select named.host, named.queue, named.domain,
    case when named.slow then 'slow' when named.dead then 'dead' else 'deferring' end as kind,
    named.began_ns, named.ended_ns, named.lasted_ns, named.attempts, min(deliveries.template) as reason,
    max(named.number) as number
from named
left join deliveries
    on deliveries.domain = named.domain and deliveries.host = named.host and deliveries.queue = named.queue
    and deliveries.done_ns = named.began_ns
group by named.host, named.queue, named.domain, named.series, named.slow, named.dead, named.began_ns, named.ended_ns,
    named.lasted_ns, named.attempts
order by named.ended_ns is null desc, named.lasted_ns desc, named.domain, named.host, named.queue, named.began_ns
