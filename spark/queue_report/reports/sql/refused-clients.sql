select
  coalesce(client, '(unknown)') as client,
  max(name) as name,
  verb, reply, code,
  count(*) as refusals,
  count(distinct nullif(address, '')) as addresses,
  timestamp_micros(div(min(time_ns), 1000)) as first,
  timestamp_micros(div(max(time_ns), 1000)) as last,
  template as reason
from refusals
group by coalesce(client, '(unknown)'), verb, reply, code, template
order by refusals desc, client, verb, reply, code, reason
