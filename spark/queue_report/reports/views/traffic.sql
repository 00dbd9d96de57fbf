-- What came and what went in the window: a row a message that was received, and a delivery that ended. hour: its number
-- since 1970.
select
  hour_of(birth_ns) as hour,
  1 as received, coalesce(bytes, 0) as bytes, 0 as delivered, 0 as deferred, 0 as bounced
from received
union all
select
  hour_of(done_ns) as hour,
  0 as received, 0 as bytes,
  case when result = 'success' then 1 else 0 end as delivered,
  case when result in ('deferral', 'mangled') then 1 else 0 end as deferred,
  case when result = 'failure' then 1 else 0 end as bounced
from deliveries
where done_ns is not null
  and (:since is null or done_ns >= :since)
  and (:until is null or done_ns < :until)
