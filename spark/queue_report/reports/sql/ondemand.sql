with ended as (
  select
    domain, start_ns, done_ns, deferrals, result,
    case
      when result <> 'failure' then result
      when startswith(reason, 'deleted_by_the_administrator') then 'deleted'
      when startswith(reason, 'The_administrator_of_this_host_has_returned_the_message') then 'returned'
      when reason like '%It_was_stored_for_too_long,_and_nobody_has_taken_it.%' then 'expired'
      else 'failure'
    end as fate
  from stored
),
all_of_them as (
  select domain, start_ns, done_ns, fate, deferrals from ended
  union all
  select domain, first_ns, cast(null as bigint), 'waiting', deferrals from pending where what = 'stored'
),
recipients as (
  select
    domain,
    count(case when (:since is null or start_ns >= :since) and (:until is null or start_ns < :until)
      then start_ns end) as stored,
    count(case when in_time and fate = 'success' then 1 end) as delivered,
    count(case when in_time and fate = 'failure' then 1 end) as failed,
    count(case when in_time and fate = 'expired' then 1 end) as expired,
    count(case when in_time and fate = 'returned' then 1 end) as returned,
    count(case when in_time and fate = 'deleted' then 1 end) as deleted,
    count(case when in_time and fate = 'requeued' then 1 end) as requeued,
    count(case when fate = 'waiting' then 1 end) as waiting,
    coalesce(sum(case when in_time or fate = 'waiting' then deferrals end), 0) as deferrals
  from (
    select
      domain, start_ns, fate, deferrals,
      (:since is null or done_ns >= :since) and (:until is null or done_ns < :until) as in_time
    from all_of_them
  ) as placed_in_time
  group by domain
),
waits as (
  select
    domain, wait,
    row_number() over (partition by domain order by wait) as place,
    count(*) over (partition by domain) as number
  from (
    select domain, try_subtract(done_ns, start_ns) as wait
    from ended
    where fate = 'success' and start_ns is not null
      and (:since is null or done_ns >= :since) and (:until is null or done_ns < :until)
  ) as delivered
),
-- The smallest time that a share of all do not exceed.
times as (
  select
    domain,
    seconds(min(case when place * 100 >= number * 50 then wait end)) as p50,
    seconds(min(case when place * 100 >= number * 99 then wait end)) as p99
  from waits
  group by domain
),
all_runs_of_them as (
  select domain, cause, start_ns from runs where start_ns is not null
  union all
  select domain, fate, start_ns from pending where what = 'run' and start_ns is not null
),
causes as (
  select
    domain,
    count(*) as runs,
    count(case when cause = 'etrn' then 1 end) as etrn,
    count(case when cause = 'atrn' then 1 end) as atrn,
    count(case when cause = 'flush' then 1 end) as flush,
    count(case when cause = 'probe' then 1 end) as probe,
    timestamp_micros(div(max(start_ns), 1000)) as last_run
  from all_runs_of_them
  where (:since is null or start_ns >= :since) and (:until is null or start_ns < :until)
  group by domain
)
select
  recipients.domain, stored, delivered, failed, expired, returned, deleted, requeued, waiting, deferrals,
  times.p50, times.p99,
  coalesce(causes.runs, 0) as runs,
  coalesce(causes.etrn, 0) as etrn,
  coalesce(causes.atrn, 0) as atrn,
  coalesce(causes.flush, 0) as flush,
  coalesce(causes.probe, 0) as probe,
  causes.last_run
from recipients
left join times on times.domain = recipients.domain
left join causes on causes.domain = recipients.domain
order by stored desc, waiting desc, recipients.domain
