select
  timestamp_seconds(3600 * hour) as start,
  sum(received) as received,
  sum(cast(bytes as decimal(28, 0))) as bytes,
  sum(delivered) as delivered,
  sum(deferred) as deferred,
  sum(bounced) as bounced
from traffic
group by hour
order by hour
