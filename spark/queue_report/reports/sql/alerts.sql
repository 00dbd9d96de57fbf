select
  kind,
  count(*) as lines,
  count(distinct host || '/' || queue) as queues,
  timestamp_micros(div(min(time_ns), 1000)) as first,
  timestamp_micros(div(max(time_ns), 1000)) as last,
  template as text,
  min(text) as example
from alerts
group by kind, template
order by kind, lines desc, last desc, template
