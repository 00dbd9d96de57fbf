-- Elapsed times are in seconds with six digits, rounded. A delivery comes before the end of its message.
with ended as (
  select
    host, queue, key, done_ns, 0 as last, recipient, start_ns, qp, uid, sender, bytes, result, reason, ddelay, xdelay,
    cast(null as decimal(28, 0)) as qtime, cast(null as bigint) as recipients, cast(null as bigint) as deferrals
  from ended_deliveries
  union all
  select
    host, queue, key, done_ns, 1 as last, '' as recipient, 0 as start_ns, qp, uid, sender, bytes, '' as result,
    '' as reason, cast(null as decimal(28, 0)) as ddelay, cast(null as decimal(28, 0)) as xdelay,
    qtime, successes + failures as recipients, deferrals
  from ended_messages
),
lines as (
  select
    host, queue, key, done_ns, last, recipient, start_ns,
    'qp ' || coalesce(cast(qp as string), '?')
    || case
      when last = 0 then
        ': to=' || recipient || ', uid=' || coalesce(cast(uid as string), '?')
        || ', ddelay=' || cast(cast(round(seconds(ddelay), 6) as decimal(28, 6)) as string)
        || ', xdelay=' || cast(cast(round(seconds(xdelay), 6) as decimal(28, 6)) as string)
        || ', stat=' || case result when 'success' then 'Sent' when 'failure' then 'Failed' else 'Deferred' end
        || ' (' || reason || ')'
      else
        ': from=' || sender || ', uid=' || coalesce(cast(uid as string), '?') || ', size=' || cast(bytes as string)
        || ', nrcpts=' || cast(recipients as string) || ', deferrals=' || cast(deferrals as string)
        || ', qtime=' || cast(cast(round(seconds(qtime), 6) as decimal(28, 6)) as string)
    end as line
  from ended
)
select timestamp_micros(div(done_ns, 1000)) as at, host, queue, line
from lines
order by done_ns, host, queue, last, key, recipient, start_ns, line
