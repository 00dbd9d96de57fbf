-- The times during which a destination (a recipient domain of one host and queue) gave trouble.
-- Its deliveries, in order of their end, are each, for one of two questions,
--   bad: it failed because the destination could not be reached or put it off (trouble); it took 60 s or more (slow);
--   good: the destination answered for good: a success, or a failure that is its own word (trouble); a success, or such
--     a failure, in less than 60 s (slow);
--   neither: a mangled report, one that was lost in a crash, what the administrator returned; for slow every deferral.
-- An episode is three or more bad ones with no good one between them, and no day between two that follow each other. It
-- begins at the end of its first bad one. It ends at the end of the next good one, if that comes within a day of its
-- last bad one; else at the end of that last one; and it is open where neither has come before the log ends.
-- slow: which question. ended_ns: null where it is open. last_ns: end of the last bad one. dead: all bad ones are of
-- class network. attempts: bad ones. messages: that had one. reason: template of the first.
with ended as (
  -- A failure with a temporary code is mail that waited too long: the destination's answer was a deferral.
  select
    domain, host, queue, key, id, delivery, start_ns, done_ns, template,
    coalesce(class = 'network', false) as network,
    case
      when result = 'success' then true
      when result = 'deferral' then false
      when class = 'network' or startswith(code, '4.') then false
      when startswith(reason, 'The_administrator_has_asked_for_this_message_to_be_returned.') then null
      else true
    end as answered,
    coalesce(try_subtract(done_ns, start_ns) < 60000000000, true) as quick
  from deliveries
  where result in ('success', 'failure', 'deferral') and done_ns is not null
),
troubled as (
  -- Most destinations have too few bad ones for an episode.
  select
    domain, host, queue,
    count(*) filter (where not answered) as deferred,
    count(*) filter (where answered and not quick) as slow
  from ended
  group by domain, host, queue
  having count(*) filter (where not answered) >= 3 or count(*) filter (where answered and not quick) >= 3
),
judged as (
  select ended.*, false as slow, ended.answered as good
  from ended
  join troubled
    on troubled.domain = ended.domain and troubled.host = ended.host and troubled.queue = ended.queue
  where troubled.deferred >= 3 and ended.answered is not null
  union all
  select ended.*, true as slow, ended.quick as good
  from ended
  join troubled
    on troubled.domain = ended.domain and troubled.host = ended.host and troubled.queue = ended.queue
  where troubled.slow >= 3 and ended.answered
),
ordered as (
  select
    domain, host, queue, slow, good, key, id, delivery, start_ns, done_ns, template, network,
    coalesce(lag(good) over series, true) as after_good,
    lag(done_ns) over series as done_before
  from judged
  window series as (partition by domain, host, queue, slow order by done_ns, start_ns, id, delivery)
),
near as (
  -- Most are good ones after good ones: those are in no episode, and end none.
  select
    domain, host, queue, slow, good, key, id, delivery, start_ns, done_ns, template, network,
    after_good or coalesce(try_subtract(done_ns, done_before) > 86400000000000, false) as begins
  from ordered
  where not (good and after_good)
),
numbered as (
  select
    domain, host, queue, slow, good, key, done_ns, template, network, begins,
    sum(case when begins then 1 else 0 end) over (
      partition by domain, host, queue, slow order by done_ns, start_ns, id, delivery
      rows between unbounded preceding and current row
    ) as island
  from near
),
islands as (
  select
    domain, host, queue, slow,
    min(case when not good then done_ns end) as began_ns,
    max(case when not good then done_ns end) as last_ns,
    max(case when good then done_ns end) as good_ns,
    bool_and(good or network) as dead,
    count(*) filter (where not good) as attempts,
    count(distinct case when not good then key end) as messages,
    max(case when begins then template end) as reason
  from numbered
  group by domain, host, queue, slow, island
)
-- What a gap ended is over: the log goes on after the gap.
select
  islands.domain, islands.host, islands.queue, islands.slow, islands.began_ns,
  coalesce(
    islands.good_ns,
    case when cast(newest.ns as decimal(28, 0)) - islands.last_ns > 86400000000000 then islands.last_ns end
  ) as ended_ns,
  islands.last_ns, islands.dead, islands.attempts, islands.messages, islands.reason
from islands
cross join newest
where islands.attempts >= 3
