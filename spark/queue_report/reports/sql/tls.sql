with kinds as (
  select
    server_port,
    case when tls_version is not null then tls_version when tls_failure is not null then 'failed' else 'none' end
      as tls,
    coalesce(tls_cipher, '') as cipher,
    count(*) as sessions,
    sum(cast(messages as decimal(28, 0))) as messages
  from sessions
  group by 1, 2, 3
),
ports as (
  select server_port, sum(sessions) as sessions, sum(messages) as messages
  from kinds
  group by server_port
)
select
  kinds.server_port as port, kinds.tls, kinds.cipher, kinds.sessions,
  quotient(100 * kinds.sessions, ports.sessions) as sessions_percent,
  kinds.messages,
  quotient(100 * kinds.messages, ports.messages) as messages_percent
from kinds
join ports on coalesce(ports.server_port, -1) = coalesce(kinds.server_port, -1)
order by kinds.server_port nulls first, kinds.sessions desc, kinds.tls, kinds.cipher
