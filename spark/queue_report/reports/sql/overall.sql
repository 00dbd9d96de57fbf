with ended as (
  select
    count(*) as messages,
    coalesce(sum(successes + failures), 0) as recips,
    coalesce(sum(successes + failures + deferrals), 0) as tries,
    coalesce(sum(cast(bytes as decimal(28, 0))), 0) as bytes,
    coalesce(sum(cast(bytes as decimal(28, 0)) * successes), 0) as sbytes,
    sum(qtime) as qtime,
    min(birth_ns) as born,
    max(done_ns) as ended
  from ended_messages
),
tried as (
  select
    count(*) as attempts,
    count_if(result = 'success') as successes,
    count_if(result = 'failure') as failures,
    count_if(result = 'deferral') as deferrals,
    sum(case when result = 'success' then ddelay end) as ddelay,
    sum(xdelay) as xdelay,
    min(birth_ns) as tried,
    max(done_ns) as done
  from ended_deliveries
),
log as (
  select
    *,
    least(born, tried) as first_ns,
    greatest(ended, done) as last_ns,
    cast(greatest(ended, done) as decimal(28, 0)) - least(born, tried) as span
  from ended
  cross join tried
)
select
  messages,
  recips,
  tries,
  quotient(tries, messages) as tries_average,
  bytes,
  sbytes,
  seconds(qtime) as qtime,
  quotient(qtime, messages * 1000000000) as qtime_average,
  attempts,
  successes,
  failures,
  deferrals,
  seconds(ddelay) as ddelay,
  quotient(ddelay, successes * 1000000000) as ddelay_average,
  seconds(xdelay) as xdelay,
  quotient(xdelay, attempts * 1000000000) as xdelay_average,
  timestamp_micros(div(first_ns, 1000)) as first,
  timestamp_micros(div(last_ns, 1000)) as last,
  seconds(span) as span,
  quotient(xdelay, span) as concurrency
from log
