-- Each message that was received in the window, followed to its end, against its deliveries. Deliveries of no known
-- message are a row too, with the state unknown. The states of others: waiting, ended, deleted, lost.
-- recipients is the message's own count. Each recipient that its deliveries show is in one of delivered, failed,
-- pending, deleted, lost and unsettled; repeated: deliveries beyond the first that settled a recipient. stored: those of
-- delivered that are stored for an on-demand domain.
-- unknown_message to deliveries_differ are the problems of conservation-messages, with its count; null: there is none.
with by_recipient as (
  select
    host, queue, key,
    count(*) filter (where result = 'success') as successes,
    count(*) filter (where stored) as storings,
    count(*) filter (where result = 'failure') as failures,
    max(case when settled then place end) as last_settled,
    max(case when not settled then place end) as last_open
  from attempts
  group by host, queue, key, channel, recipient
),
recipients as (
  -- open: its latest attempt left it undecided, or it was settled only before that.
  select
    host, queue, key, successes, failures, successes > 0 and successes = storings as stored,
    last_open is not null and (last_settled is null or last_open > last_settled) as open
  from by_recipient
),
found as (
  select
    host, queue, key,
    count(*) as found,
    sum(successes) as successes,
    sum(failures) as failures,
    count(*) filter (where not open and successes > 0) as delivered,
    count(*) filter (where not open and stored) as stored,
    count(*) filter (where open and stored) as open_stored,
    count(*) filter (where not open and successes = 0) as failed,
    count(*) filter (where open and successes > 0) as open_delivered,
    count(*) filter (where open and successes = 0 and failures > 0) as open_failed,
    count(*) filter (where open and successes = 0 and failures = 0) as undecided,
    sum(greatest(successes + failures - 1, 0)) as repeated
  from recipients
  group by host, queue, key
),
joined as (
  -- With a domain only the deliveries are those to it, not what a message has counted.
  select
    host, queue, key, lives.sender, lives.outcome, lives.done_ns,
    coalesce(lives.birth_ns, lives.first_ns) as born_ns,
    lives.birth_ns is not null as whole,
    case when :domain is null or lives.first_ns is null then coalesce(lives.successes, 0)
      else coalesce(found.successes, 0) end as successes,
    case when :domain is null or lives.first_ns is null then coalesce(lives.failures, 0)
      else coalesce(found.failures, 0) end as failures,
    case when :domain is null or lives.first_ns is null then coalesce(lives.recipients, 0)
      else coalesce(found.found, 0) end as recipients,
    coalesce(found.found, 0) as found,
    coalesce(found.successes, 0) as found_successes,
    coalesce(found.failures, 0) as found_failures,
    coalesce(found.delivered, 0) as delivered,
    coalesce(found.stored, 0) as stored,
    coalesce(found.open_stored, 0) as open_stored,
    coalesce(found.failed, 0) as failed,
    coalesce(found.open_delivered, 0) as open_delivered,
    coalesce(found.open_failed, 0) as open_failed,
    coalesce(found.undecided, 0) as undecided,
    coalesce(found.repeated, 0) as repeated,
    case
      when lives.first_ns is null then 'unknown'
      when lives.done_ns is null then 'waiting'
      when lives.outcome in ('deleted', 'lost') then lives.outcome
      else 'ended'
    end as state
  from lives
  full join found using (host, queue, key)
),
settled as (
  -- Where the message has ended all of it was settled; then it is open only because the clock was set back.
  select
    host, queue, key, sender, outcome, born_ns, done_ns, whole, state,
    successes, failures, recipients, found, found_successes, found_failures, repeated,
    case when state in ('waiting', 'deleted') then delivered else delivered + open_delivered end as delivered,
    case when state in ('waiting', 'deleted') then stored else stored + open_stored end as stored,
    case when state in ('waiting', 'deleted') then failed else failed + open_failed end as failed,
    case when state in ('waiting', 'deleted') then undecided + open_delivered + open_failed
      else undecided end as open
  from joined
  where (:since is null or born_ns >= :since) and (:until is null or born_ns < :until)
)
select
  host, queue, key, sender, outcome, born_ns, done_ns, state, recipients, repeated, delivered, stored, failed,
  case when state = 'waiting' then open else 0 end as pending,
  case when state = 'deleted' then open else 0 end as deleted,
  case when state = 'unknown' then found end as unknown_message,
  case when state = 'lost' then open end as lost,
  case when state = 'ended' and open > 0 then open end as unsettled,
  case when state = 'ended' and whole and recipients = 0 and found = 0 then 0 end as never_tried,
  case when state <> 'unknown' and found <> recipients then found - recipients end as recipients_differ,
  case when state <> 'unknown' and (found_successes <> successes or found_failures <> failures)
    then found_successes + found_failures - successes - failures end as deliveries_differ
from settled
