with named as (
  select
    case
      when sender is null then '(unknown)'
      when sender in ('', '#@[]') then 'MAILER-DAEMON'
      when instr(sender, '@') > 0 then substring_index(lower(sender), '@', -1)
      else ''
    end as domain,
    bytes
  from received
)
select domain, count(*) as received, coalesce(sum(cast(bytes as decimal(28, 0))), 0) as bytes
from named
group by domain
order by received desc, domain
