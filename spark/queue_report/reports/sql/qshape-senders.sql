with each as (
  select
    case
      when sender is null then '(unknown)'
      when sender in ('', '#@[]') then 'MAILER-DAEMON'
      when instr(sender, '@') > 0 then lower(substring_index(sender, '@', -1))
      else ''
    end as domain,
    minutes,
    1 as number
  from waiting
),
shape as (
  select
    domain,
    sum(number) as `T`,
    sum(case when minutes < 5 then number else 0 end) as `5`,
    sum(case when minutes >= 5 and minutes < 10 then number else 0 end) as `10`,
    sum(case when minutes >= 10 and minutes < 20 then number else 0 end) as `20`,
    sum(case when minutes >= 20 and minutes < 40 then number else 0 end) as `40`,
    sum(case when minutes >= 40 and minutes < 80 then number else 0 end) as `80`,
    sum(case when minutes >= 80 and minutes < 160 then number else 0 end) as `160`,
    sum(case when minutes >= 160 and minutes < 320 then number else 0 end) as `320`,
    sum(case when minutes >= 320 and minutes < 640 then number else 0 end) as `640`,
    sum(case when minutes >= 640 and minutes < 1280 then number else 0 end) as `1280`,
    sum(case when minutes >= 1280 then number else 0 end) as `1280+`
  from each
  where number > 0
  group by domain
)
select domain, `T`, `5`, `10`, `20`, `40`, `80`, `160`, `320`, `640`, `1280`, `1280+`
from (
  select 1 as place, domain, `T`, `5`, `10`, `20`, `40`, `80`, `160`, `320`, `640`, `1280`, `1280+`
  from shape
  union all
  select
    0 as place, 'TOTAL' as domain, coalesce(sum(`T`), 0) as `T`,
    coalesce(sum(`5`), 0) as `5`, coalesce(sum(`10`), 0) as `10`, coalesce(sum(`20`), 0) as `20`,
    coalesce(sum(`40`), 0) as `40`, coalesce(sum(`80`), 0) as `80`, coalesce(sum(`160`), 0) as `160`,
    coalesce(sum(`320`), 0) as `320`, coalesce(sum(`640`), 0) as `640`, coalesce(sum(`1280`), 0) as `1280`,
    coalesce(sum(`1280+`), 0) as `1280+`
  from shape
) as rows_and_total
order by place, `T` desc, length(domain), domain
