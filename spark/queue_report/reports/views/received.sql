-- The messages that were received in the window, those that wait too; those older than the log are in none.
select host, queue, key, sender, birth_ns, bytes
from lives
where birth_ns is not null
  and (:since is null or birth_ns >= :since)
  and (:until is null or birth_ns < :until)
