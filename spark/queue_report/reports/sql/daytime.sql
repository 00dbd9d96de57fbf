-- An hour of the day in which nothing ever happened has a row too.
with by_hour as (
  select
    pmod(hour, 24) as hour, div(hour - pmod(hour, 24), 24) as day,
    received, cast(bytes as decimal(28, 0)) as bytes, delivered, deferred, bounced
  from traffic
  union all
  select explode(sequence(0, 23)) as hour, null as day, 0 as received, 0 as bytes, 0 as delivered, 0 as deferred, 0 as bounced
),
sums as (
  select
    hour, sum(received) as received, sum(bytes) as bytes, sum(delivered) as delivered, sum(deferred) as deferred,
    sum(bounced) as bounced
  from by_hour
  group by hour
),
days as (
  select greatest(count(distinct day), 1) as number
  from by_hour
)
select
  sums.hour,
  cast(round(quotient(sums.received, days.number), 2) as decimal(22, 2)) as received,
  cast(round(quotient(sums.bytes, days.number), 2) as decimal(22, 2)) as bytes,
  cast(round(quotient(sums.delivered, days.number), 2) as decimal(22, 2)) as delivered,
  cast(round(quotient(sums.deferred, days.number), 2) as decimal(22, 2)) as deferred,
  cast(round(quotient(sums.bounced, days.number), 2) as decimal(22, 2)) as bounced
from sums
cross join days
order by sums.hour
