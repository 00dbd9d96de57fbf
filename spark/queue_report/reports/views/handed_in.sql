-- The messages that queue-smtpd has handed to the queue, each with the queue's own life of it (all null where the log of
-- that host's queues has none): of those with its number and sender, the first that began after the message was born.
-- A life's number is used again by later messages, whose births are later.
with found as (
  select
    accepted.host, accepted.queue, accepted.key, accepted.time_ns, accepted.client, accepted.name, accepted.auth_user,
    accepted.tls_version, accepted.long_id, accepted.sender, accepted.recipients, accepted.bytes,
    lives.queue as life_queue, lives.key as life_key, lives.outcome, lives.done_ns, lives.successes, lives.failures,
    row_number() over (
      partition by accepted.host, accepted.queue, accepted.key, accepted.time_ns, accepted.long_id
      order by lives.first_ns, lives.queue
    ) as place
  from accepted
  left join lives
    on lives.host = accepted.host and lives.id = accepted.id and lives.first_ns >= accepted.birth_ns
    and (accepted.sender is null or lives.sender is null or lives.sender = accepted.sender)
  where (:since is null or accepted.time_ns >= :since) and (:until is null or accepted.time_ns < :until)
)
select *
from found
where place = 1
