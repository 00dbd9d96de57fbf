with queued as (
  select host, queue, key, minutes from waiting
),
now as (
  select ns from moment
),
recipients as (
  -- later: how often it was settled after the moment. last_settled, last_open: places of its latest attempts.
  select
    attempts.host, attempts.queue, attempts.key, attempts.domain,
    count(*) filter (where attempts.settled and attempts.done_ns > now.ns) as later,
    max(case when attempts.settled then attempts.place end) as last_settled,
    max(case when not attempts.settled then attempts.place end) as last_open
  from attempts
  join queued
    on queued.key = attempts.key and queued.host = attempts.host and queued.queue = attempts.queue
  cross join now
  group by attempts.host, attempts.queue, attempts.key, attempts.channel, attempts.recipient, attempts.domain
),
known as (
  -- A recipient waits as often as it was settled later, and once more if its latest attempt left it open.
  select
    host, queue, key, domain,
    sum(later)
    + count(*) filter (where last_open is not null and (last_settled is null or last_open > last_settled)) as number
  from recipients
  group by host, queue, key, domain
),
each as (
  select queued.minutes, coalesce(known.domain, '(not yet tried)') as domain, coalesce(known.number, 1) as number
  from queued
  left join known on known.key = queued.key and known.host = queued.host and known.queue = queued.queue
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
