with chosen as (
  select *
  from sessions
  where (:since is null or coalesce(done_ns, start_ns) >= :since)
    and (:until is null or coalesce(done_ns, start_ns) < :until)
),
all_of_them as (
  -- One that began before the log has lines that are not in it.
  select
    host, queue, 1 as sessions, 0 as open,
    case when ended = 'killed' then 1 else 0 end as killed,
    case when ended <> 'killed' and client is not null and end_messages <> messages then 1 else 0 end as wrong_messages,
    case when ended <> 'killed' and client is not null and end_errors <> refused then 1 else 0 end as wrong_refusals,
    0 as accepted, 0 as in_queue
  from chosen
  union all
  select host, queue, 1, 1, 0, 0, 0, 0, 0
  from pending
  where what = 'session'
  union all
  select host, queue, 0, 0, 0, 0, 0, 1, case when life_key is null then 0 else 1 end
  from handed_in
)
select
  host, queue,
  sum(sessions) as sessions,
  sum(open) as open,
  sum(killed) as killed,
  sum(wrong_messages) as messages_differ,
  sum(wrong_refusals) as refusals_differ,
  sum(accepted) as accepted,
  sum(in_queue) as in_queue,
  sum(accepted) - sum(in_queue) as not_in_log
from all_of_them
group by host, queue
order by host, queue
