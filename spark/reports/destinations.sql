with found as (
  -- What a day without a bad one ended is over: the log goes on after it.
  select
    episodes.domain, episodes.host, episodes.queue, episodes.slow, episodes.began_ns, episodes.dead,
    episodes.attempts, episodes.messages, episodes.reason, newest.ns as newest_ns,
    coalesce(
      episodes.good_ns,
      case when cast(newest.ns as decimal(28, 0)) - episodes.last_ns > 86400000000000 then episodes.last_ns end
    ) as ended_ns
  from episodes
  cross join newest
),
chosen as (
  select
    domain, host, queue, slow, began_ns, ended_ns, dead, attempts, messages, reason,
    coalesce(ended_ns, newest_ns) as until_ns
  from found
  where (:since is null or coalesce(ended_ns, newest_ns) >= :since) and (:until is null or began_ns < :until)
),
destinations as (
  select distinct domain, host, queue from chosen
),
recipients as (
  select
    attempts.host, attempts.queue, attempts.key, attempts.domain,
    max(case when attempts.settled then attempts.place end) as last_settled,
    max(case when not attempts.settled then attempts.place end) as last_open,
    max(case when attempts.settled then attempts.done_ns end) as settled_ns
  from attempts
  join destinations
    on destinations.domain = attempts.domain and destinations.host = attempts.host
    and destinations.queue = attempts.queue
  group by attempts.host, attempts.queue, attempts.key, attempts.channel, attempts.recipient, attempts.domain
),
messages_there as (
  -- settled_ns: when the last recipient of a message there was settled; null where one is open.
  select
    host, queue, key, domain,
    case
      when count(*) filter (where last_open is not null and (last_settled is null or last_open > last_settled)) = 0
        then max(settled_ns)
    end as settled_ns
  from recipients
  group by host, queue, key, domain
),
waits as (
  -- From when to when a message waited for a destination; to_ns is null where it still does. It is not before from_ns,
  -- which a clock that was set back could make of it.
  select
    messages_there.domain, messages_there.host, messages_there.queue,
    coalesce(lives.birth_ns, lives.first_ns) as from_ns,
    case
      when coalesce(messages_there.settled_ns, lives.done_ns) is not null then greatest(
        coalesce(lives.birth_ns, lives.first_ns), coalesce(messages_there.settled_ns, lives.done_ns)
      )
    end as to_ns
  from messages_there
  join lives
    on lives.key = messages_there.key and lives.host = messages_there.host and lives.queue = messages_there.queue
),
-- Messages that waited at some time of an episode: those that had begun before it ended, less those that had stopped
-- before it began. Both are running counts. A question comes before what happens at the same time.
events as (
  select
    domain, host, queue, cast(null as boolean) as slow, cast(null as bigint) as began_ns, 1 as place,
    from_ns as ns, 1 as begun, 0 as stopped
  from waits
  union all
  select domain, host, queue, cast(null as boolean), cast(null as bigint), 1, to_ns, 0, 1
  from waits
  where to_ns is not null
  union all
  select domain, host, queue, slow, began_ns, 0, began_ns, 0, 0
  from chosen
  union all
  select domain, host, queue, slow, began_ns, 0, coalesce(ended_ns, 9223372036854775807), 0, 0
  from chosen
),
counted as (
  select
    domain, host, queue, slow, began_ns, place,
    sum(begun) over so_far as begun,
    sum(stopped) over so_far as stopped
  from events
  window so_far as (
    partition by domain, host, queue order by ns, place rows between unbounded preceding and current row
  )
),
held as (
  select domain, host, queue, slow, began_ns, max(begun) - min(stopped) as held
  from counted
  where place = 0
  group by domain, host, queue, slow, began_ns
)
select
  chosen.host, chosen.queue, chosen.domain,
  case when chosen.slow then 'slow' when chosen.dead then 'dead' else 'deferring' end as kind,
  timestamp_micros(div(chosen.began_ns, 1000)) as began,
  timestamp_micros(div(chosen.ended_ns, 1000)) as ended,
  seconds(cast(chosen.until_ns as decimal(28, 0)) - chosen.began_ns) as seconds,
  chosen.attempts, chosen.messages, held.held, chosen.reason
from chosen
join held
  on held.domain = chosen.domain and held.host = chosen.host and held.queue = chosen.queue
  and held.slow = chosen.slow and held.began_ns = chosen.began_ns
order by began, chosen.domain, chosen.host, chosen.queue, kind, chosen.began_ns
