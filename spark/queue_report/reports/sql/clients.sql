select
  coalesce(client, '(unknown)') as client,
  max(name) as name,
  count(*) as sessions,
  count(tls_version) as tls,
  count(auth_user) as authenticated,
  sum(cast(messages as decimal(28, 0))) as messages,
  sum(cast(recipients as decimal(28, 0))) as recipients,
  sum(cast(bytes as decimal(28, 0))) as bytes,
  sum(cast(refused as decimal(28, 0))) as refused,
  sum(cast(auth_failures as decimal(28, 0))) as auth_failures,
  timestamp_micros(div(max(coalesce(done_ns, start_ns)), 1000)) as last
from sessions
group by coalesce(client, '(unknown)')
order by messages desc, sessions desc, client
