select
  verb, reply, code, class,
  count(*) as refusals,
  count(distinct client) as clients,
  count(distinct nullif(address, '')) as addresses,
  timestamp_micros(div(min(time_ns), 1000)) as first,
  timestamp_micros(div(max(time_ns), 1000)) as last,
  template as reason,
  min(reason) as example
from refusals
group by verb, reply, code, class, template
order by refusals desc, verb, reply, code, class, template
