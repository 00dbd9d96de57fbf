select
  count(*) as del,
  seconds(sum(cast(done_ns as decimal(28, 0)) - start_ns)) as xdelay,
  code,
  class,
  template as reason,
  min(coalesce(reason, 'report_mangled')) as example
from deliveries
where result in ('deferral', 'mangled')
group by template, code, class
order by del desc, xdelay desc, template, code, class
