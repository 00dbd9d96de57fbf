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
with series as (
  -- The questions for which a destination has bad deliveries enough for an episode; most have not.
  select sums.domain, sums.host, sums.queue, questions.slow
  from (
    select
      domain, host, queue,
      count(*) filter (where not answered) as deferred,
      count(*) filter (where answered and not quick) as slow
    from answers
    group by domain, host, queue
  ) as sums
  cross join (values (false), (true)) as questions (slow)
  where case when questions.slow then sums.slow else sums.deferred end >= 3
),
judged as (
  -- Of a good one only the time counts.
  select
    answers.domain, answers.host, answers.queue, series.slow,
    answers.id, answers.delivery, answers.start_ns, answers.done_ns, answers.network,
    case when series.slow then answers.quick else answers.answered end as good,
    case when not (answers.answered and (answers.quick or not series.slow)) then answers.key end as key,
    case when not (answers.answered and (answers.quick or not series.slow)) then answers.template end as template
  from answers
  join series on series.domain = answers.domain and series.host = answers.host and series.queue = answers.queue
  where answers.answered or (not series.slow and not answers.answered)
),
ordered as (
  select
    domain, host, queue, slow, good, done_ns, network, key, template,
    row_number() over series_in_order as place,
    coalesce(lag(good) over series_in_order, true) as after_good,
    lag(done_ns) over series_in_order as done_before
  from judged
  window series_in_order as (partition by domain, host, queue, slow order by done_ns, start_ns, id, delivery)
),
near as (
  -- Most are good ones after good ones: those are in no episode, and end none.
  select
    domain, host, queue, slow, good, done_ns, network, key, template, place,
    after_good or coalesce(try_subtract(done_ns, done_before) > 86400000000000, false) as begins
  from ordered
  where not (good and after_good)
),
numbered as (
  select
    domain, host, queue, slow, good, done_ns, network, key, template, begins,
    sum(case when begins then 1 else 0 end) over (
      partition by domain, host, queue, slow order by place rows between unbounded preceding and current row
    ) as island
  from near
)
select
  domain, host, queue, slow,
  min(case when not good then done_ns end) as began_ns,
  max(case when not good then done_ns end) as last_ns,
  max(case when good then done_ns end) as good_ns,
  bool_and(good or network) as dead,
  count(*) filter (where not good) as attempts,
  count(distinct key) as messages,
  max(case when begins then template end) as reason
from numbered
group by domain, host, queue, slow, island
having count(*) filter (where not good) >= 3
