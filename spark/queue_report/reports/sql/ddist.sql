-- With x successes, of which n took no longer than a delay, that delay belongs to percentage floor(100 n / x), and the
-- least one of each percentage is its doneby. A large log's delays are sorted by buckets, so that many can sort:
-- a bucket is the number of digits and the first four of them.
with placed as (
  select
    ddelay,
    case
      when ddelay <= 0 then 0
      else 10000 * length(cast(ddelay as string)) + cast(substring(cast(ddelay as string), 1, 4) as int)
    end as bucket
  from ended_deliveries
  where result = 'success'
),
sizes as (
  select bucket, count(*) as n
  from placed
  group by bucket
),
buckets as (
  select
    bucket,
    sum(n) over (order by bucket rows between unbounded preceding and current row) - n as before,
    sum(n) over () as everything
  from sizes
),
ranked as (
  select
    placed.ddelay,
    div(
      100 * (buckets.before + count(*) over (partition by placed.bucket order by placed.ddelay)), buckets.everything
    ) as pct
  from placed
  join buckets on buckets.bucket = placed.bucket
),
percentages as (
  select pct, min(ddelay) as doneby, sum(ddelay) as total, count(*) as n
  from ranked
  group by pct
),
running as (
  select pct, doneby, sum(total) over (order by pct) as total, sum(n) over (order by pct) as n
  from percentages
)
select seconds(doneby) as doneby, quotient(total, n * 1000000000) as avg, pct
from running
where pct >= 10
order by pct
