select
  filter, verdict, stage,
  count(*) as verdicts,
  quotient(100 * count(*), sum(count(*)) over (partition by filter)) as verdicts_percent,
  count(distinct sender) as senders,
  count(distinct client) as clients,
  timestamp_micros(div(min(time_ns), 1000)) as first,
  timestamp_micros(div(max(time_ns), 1000)) as last,
  template as reason,
  min(reason) as example
from filters
group by filter, verdict, stage, template
order by filter, verdicts desc, verdict, stage, template
