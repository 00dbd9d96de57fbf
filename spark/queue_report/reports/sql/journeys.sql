with last_ones as (
  select
    host, queue, key, channel, recipient, done_ns, result, reason,
    count(*) over (partition by host, queue, key, channel, recipient) as attempts,
    row_number() over (
      partition by host, queue, key, channel, recipient order by start_ns desc, delivery desc, done_ns desc, result, reason
    ) as place
  from deliveries
)
select
  timestamp_micros(div(handed_in.time_ns, 1000)) as accepted,
  handed_in.client, handed_in.name, handed_in.auth_user, handed_in.sender, handed_in.long_id,
  last_ones.recipient, last_ones.attempts, last_ones.result,
  timestamp_micros(div(last_ones.done_ns, 1000)) as done,
  seconds(cast(last_ones.done_ns as decimal(28, 0)) - handed_in.time_ns) as seconds,
  case when handed_in.life_key is null then '(not in the log)' else coalesce(handed_in.outcome, 'waiting') end
    as message,
  last_ones.reason,
  handed_in.host, handed_in.key as session
from handed_in
left join last_ones
  on last_ones.host = handed_in.host and last_ones.queue = handed_in.life_queue
  and last_ones.key = handed_in.life_key and last_ones.place = 1
where :domain is null or last_ones.recipient is not null
order by handed_in.time_ns, handed_in.host, handed_in.key, handed_in.long_id, last_ones.recipient nulls first,
  handed_in.life_queue, handed_in.life_key, last_ones.channel
