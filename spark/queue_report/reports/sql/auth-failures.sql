with failed as (
  select
    address as auth_user, client, max(name) as name, count(*) as failures,
    min(time_ns) as first_ns, max(time_ns) as last_ns, min(reason) as reason
  from refusals
  where verb = 'AUTH'
  group by address, client
),
right_ones as (
  select auth_user, client, count(*) as sessions
  from sessions
  where auth_user is not null
  group by auth_user, client
)
select
  failed.auth_user, coalesce(failed.client, '(unknown)') as client, failed.name, failed.failures,
  coalesce(right_ones.sessions, 0) as successes,
  timestamp_micros(div(failed.first_ns, 1000)) as first,
  timestamp_micros(div(failed.last_ns, 1000)) as last,
  failed.reason
from failed
left join right_ones on right_ones.auth_user = failed.auth_user and right_ones.client = failed.client
order by failed.failures desc, failed.auth_user, client
