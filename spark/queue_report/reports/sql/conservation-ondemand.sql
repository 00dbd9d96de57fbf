with each as (
  -- What queue-send was told is stored.
  select
    host, queue, domain, done_ns as at_ns, 1 as told, 0 as stored, 0 as delivered, 0 as failed, 0 as requeued,
    0 as waiting, 0 as unknown, 0 as runs, 0 as killed, 0 as differ
  from deliveries
  where result = 'success' and startswith(reason, concat('stored_for_', domain))
  union all
  select
    host, queue, domain, coalesce(start_ns, done_ns), 0,
    case when start_ns is null then 0 else 1 end,
    case when start_ns is not null and result = 'success' then 1 else 0 end,
    case when start_ns is not null and result = 'failure' then 1 else 0 end,
    case when start_ns is not null and result = 'requeued' then 1 else 0 end,
    0,
    case when start_ns is null then 1 else 0 end,
    0, 0, 0
  from stored
  union all
  select host, queue, domain, first_ns, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0
  from pending
  where what = 'stored'
  union all
  -- One without a beginning is no delivery, or began before the log.
  select
    host, queue, domain, start_ns, 0, 0, 0, 0, 0, 0, 0, 1,
    case when done_ns is null then 1 else 0 end,
    case when done_ns is not null and (successes <> delivered or failures <> failed) then 1 else 0 end
  from runs
  where start_ns is not null
)
select
  host, queue, domain,
  sum(told) as told,
  sum(stored) as stored,
  sum(delivered) as delivered,
  sum(failed) as failed,
  sum(requeued) as requeued,
  sum(waiting) as waiting,
  sum(told) - sum(stored) as not_stored,
  sum(unknown) as unknown,
  sum(runs) as runs,
  sum(killed) as killed,
  sum(differ) as runs_differ
from each
where (:since is null or at_ns >= :since) and (:until is null or at_ns < :until)
group by host, queue, domain
order by host, queue, domain
