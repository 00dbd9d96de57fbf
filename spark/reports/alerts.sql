select
  kind,
  count(*) as lines,
  count(distinct host || '/' || queue) as queues,
  min(at) as first,
  max(at) as last,
  template as text,
  min(text) as example
from alerts
group by kind, template
order by kind, lines desc, last desc, template
