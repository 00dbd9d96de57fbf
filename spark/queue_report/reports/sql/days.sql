with by_day as (
  select div(hour - pmod(hour, 24), 24) as day, received, bytes, delivered, deferred, bounced
  from traffic
)
select
  timestamp_seconds(86400 * day) as start,
  sum(received) as received,
  sum(cast(bytes as decimal(28, 0))) as bytes,
  sum(delivered) as delivered,
  sum(deferred) as deferred,
  sum(bounced) as bounced
from by_day
group by day
order by day
