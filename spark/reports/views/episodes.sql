-- The times during which a destination (a recipient domain of one host and queue) gave trouble.
-- Its deliveries, in order of their end, are each, for one of two questions,
--   bad: it failed because the destination could not be reached or put it off (trouble); it took 60 s or more (slow);
--   good: the destination answered for good: a success, or a failure that is its own word (trouble); a success, or such
--     a failure, in less than 60 s (slow);
--   neither: a mangled report, one that was lost in a crash, what the administrator returned; for slow every deferral.
-- An episode is three or more bad ones with no good one between them, and no day between two that follow each other. It
-- begins at the end of its first bad one. It ends at the end of the next good one, if that comes within a day of its
-- last bad one; else at the end of that last one; and it is open where neither has come before the log ends.
-- slow: which question. last_ns: end of the last bad one. good_ns: of the good one that ended it; null for none. dead:
-- all bad ones are of class network. attempts: bad ones. messages: that had one. reason: template of the first.
with troubled as (
  -- Most destinations have too few bad deliveries for an episode.
  select
    domain, host, queue,
    row_number() over (order by domain, host, queue) as destination,
    count(*) filter (where not answered) as deferred,
    count(*) filter (where answered and not quick) as slow
  from answers
  group by domain, host, queue
  having count(*) filter (where not answered) >= 3 or count(*) filter (where answered and not quick) >= 3
),
judged as (
  -- Of a good one only the time counts.
  select
    troubled.destination, false as slow, answers.answered as good,
    answers.id, answers.delivery, answers.start_ns, answers.done_ns, answers.network or answers.answered as dead,
    case when not answers.answered then answers.key end as key,
    case when not answers.answered then answers.template end as template
  from answers
  join troubled
    on troubled.domain = answers.domain and troubled.host = answers.host and troubled.queue = answers.queue
  where troubled.deferred >= 3 and answers.answered is not null
  union all
  select
    troubled.destination, true as slow, answers.quick as good,
    answers.id, answers.delivery, answers.start_ns, answers.done_ns, answers.network or answers.quick as dead,
    case when not answers.quick then answers.key end as key,
    case when not answers.quick then answers.template end as template
  from answers
  join troubled
    on troubled.domain = answers.domain and troubled.host = answers.host and troubled.queue = answers.queue
  where troubled.slow >= 3 and answers.answered
),
ordered as (
  select
    destination, slow, good, done_ns, dead, key, template,
    row_number() over series as place,
    coalesce(lag(good) over series, true) as after_good,
    lag(done_ns) over series as done_before
  from judged
  window series as (partition by destination, slow order by done_ns, start_ns, id, delivery)
),
near as (
  -- Most are good ones after good ones: those are in no episode, and end none.
  select
    destination, slow, good, done_ns, dead, key, template, place,
    after_good or coalesce(try_subtract(done_ns, done_before) > 86400000000000, false) as begins
  from ordered
  where not (good and after_good)
),
numbered as (
  select
    destination, slow, good, done_ns, dead, key, template, begins,
    sum(case when begins then 1 else 0 end) over (
      partition by destination, slow order by place rows between unbounded preceding and current row
    ) as island
  from near
),
islands as (
  select
    destination, slow,
    min(case when not good then done_ns end) as began_ns,
    max(case when not good then done_ns end) as last_ns,
    max(case when good then done_ns end) as good_ns,
    bool_and(dead) as dead,
    count(*) filter (where not good) as attempts,
    count(distinct key) as messages,
    max(case when begins then template end) as reason
  from numbered
  group by destination, slow, island
  having count(*) filter (where not good) >= 3
)
select
  troubled.domain, troubled.host, troubled.queue, islands.slow, islands.began_ns, islands.last_ns, islands.good_ns,
  islands.dead, islands.attempts, islands.messages, islands.reason
from islands
join troubled on troubled.destination = islands.destination
