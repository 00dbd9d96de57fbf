with found as (
  select
    episodes.domain, episodes.host, episodes.queue, episodes.slow, episodes.dead, episodes.attempts,
    episodes.messages, episodes.reason, episodes.began_ns,
    -- What a day without a bad one ended is over: the log goes on after it.
    coalesce(
      episodes.good_ns,
      case when cast(newest.ns as decimal(28, 0)) - episodes.last_ns > 86400000000000 then episodes.last_ns end
    ) as ended_ns,
    newest.ns as newest_ns
  from episodes
  cross join newest
),
chosen as (
  select *
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
-- before it began. Both are running counts. The questions, at its beginning and at its end, come before what happens at
-- the same time; they carry the episode along.
events as (
  select
    domain, host, queue, from_ns as ns, 1 as place, 1 as begun, 0 as stopped,
    cast(null as boolean) as slow, cast(null as boolean) as dead, cast(null as bigint) as attempts,
    cast(null as bigint) as messages, cast(null as string) as reason, cast(null as bigint) as began_ns,
    cast(null as bigint) as ended_ns, cast(null as bigint) as newest_ns
  from waits
  union all
  select domain, host, queue, to_ns, 1, 0, 1, null, null, null, null, null, null, null, null
  from waits
  where to_ns is not null
  union all
  select
    chosen.domain, chosen.host, chosen.queue,
    case when sides.at_end then coalesce(chosen.ended_ns, 9223372036854775807) else chosen.began_ns end, 0, 0, 0,
    chosen.slow, chosen.dead, chosen.attempts, chosen.messages, chosen.reason, chosen.began_ns, chosen.ended_ns,
    chosen.newest_ns
  from chosen
  cross join (values (false), (true)) as sides (at_end)
),
counted as (
  select
    domain, host, queue, place, slow, dead, attempts, messages, reason, began_ns, ended_ns, newest_ns,
    sum(begun) over so_far as begun,
    sum(stopped) over so_far as stopped
  from events
  window so_far as (
    partition by domain, host, queue order by ns, place rows between unbounded preceding and current row
  )
)
select
  host, queue, domain,
  case when slow then 'slow' when dead then 'dead' else 'deferring' end as kind,
  timestamp_micros(div(began_ns, 1000)) as began,
  timestamp_micros(div(ended_ns, 1000)) as ended,
  seconds(cast(coalesce(ended_ns, newest_ns) as decimal(28, 0)) - began_ns) as seconds,
  attempts, messages,
  max(begun) - min(stopped) as held,
  reason
from counted
where place = 0
group by host, queue, domain, slow, dead, attempts, messages, reason, began_ns, ended_ns, newest_ns
order by began, domain, host, queue, kind, began_ns
