with ended as (
  select
    count(*) as messages,
    coalesce(sum(successes + failures), 0) as recips,
    coalesce(sum(successes + failures + deferrals), 0) as tries,
    coalesce(sum(cast(bytes as decimal(38, 0))), 0) as bytes,
    coalesce(sum(cast(bytes as decimal(38, 0)) * successes), 0) as sbytes,
    sum(cast(done_ns - birth_ns as decimal(38, 0))) as qtime,
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
    sum(cast(case when result = 'success' then done_ns - birth_ns end as decimal(38, 0))) as ddelay,
    sum(cast(done_ns - start_ns as decimal(38, 0))) as xdelay,
    min(birth_ns) as tried,
    max(done_ns) as done
  from ended_deliveries
),
both_counts as (
  select *, least(born, tried) as first_ns, greatest(ended, done) as last_ns
  from ended
  cross join tried
)
select
  messages, recips, tries, quotient(tries, messages) as tries_average,
  bytes, sbytes,
  seconds(qtime) as qtime, quotient(qtime, messages * 1000000000) as qtime_average,
  attempts, successes, failures, deferrals,
  seconds(ddelay) as ddelay, quotient(ddelay, successes * 1000000000) as ddelay_average,
  seconds(xdelay) as xdelay, quotient(xdelay, attempts * 1000000000) as xdelay_average,
  timestamp_micros(div(first_ns, 1000)) as first,
  timestamp_micros(div(last_ns, 1000)) as last,
  seconds(last_ns - first_ns) as span,
  quotient(xdelay, last_ns - first_ns) as concurrency
from both_counts
