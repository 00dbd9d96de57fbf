with ages as (
  -- A message is in a bucket from one age to another, in minutes.
  select *
  from (values
    (0, 0, 5), (1, 5, 10), (2, 10, 20), (3, 20, 40), (4, 40, 80), (5, 80, 160), (6, 160, 320), (7, 320, 640),
    (8, 640, 1280), (9, 1280, cast(null as int))
  ) as buckets (bucket, from_minutes, to_minutes)
),
stays as (
  -- Messages that waited at a full hour, by the full minutes at or after their birth and their end: hours and ages
  -- begin at full minutes, so no more need be known. Most messages have come and gone between two full hours.
  select born, done, count(*) as number
  from (
    select
      case when born_ns > 0 then div(born_ns - 1, 60000000000) + 1 else div(born_ns, 60000000000) end as born,
      case when done_ns > 0 then div(done_ns - 1, 60000000000) + 1 else div(done_ns, 60000000000) end as done
    from (select coalesce(birth_ns, first_ns) as born_ns, done_ns from lives) as bounds
    where done_ns is null or hour_of(born_ns - 1) < hour_of(done_ns - 1)
  ) as minutes
  group by born, done
),
stretches as (
  -- From when until when they were in a bucket.
  select
    ages.bucket, stays.number,
    stays.born + ages.from_minutes as begun,
    least(stays.done, stays.born + ages.to_minutes) as ended
  from stays
  cross join ages
),
hours as (
  -- The full hours at or after that.
  select
    bucket, number,
    case when begun > 0 then div(begun - 1, 60) + 1 else div(begun, 60) end as first,
    case when ended > 0 then div(ended - 1, 60) + 1 else div(ended, 60) end as last
  from stretches
),
steps as (
  select first as hour, bucket, number as step from hours where last is null or first < last
  union all
  select last as hour, bucket, -number as step from hours where first < last
),
by_hour as (
  select
    hour,
    sum(case when bucket = 0 then step else 0 end) as b0,
    sum(case when bucket = 1 then step else 0 end) as b1,
    sum(case when bucket = 2 then step else 0 end) as b2,
    sum(case when bucket = 3 then step else 0 end) as b3,
    sum(case when bucket = 4 then step else 0 end) as b4,
    sum(case when bucket = 5 then step else 0 end) as b5,
    sum(case when bucket = 6 then step else 0 end) as b6,
    sum(case when bucket = 7 then step else 0 end) as b7,
    sum(case when bucket = 8 then step else 0 end) as b8,
    sum(case when bucket = 9 then step else 0 end) as b9
  from steps
  group by hour
),
shape as (
  select
    cast(hour as decimal(28, 0)) * 3600000000000 as at_ns,
    sum(b0) over (order by hour rows between unbounded preceding and current row) as `5`,
    sum(b1) over (order by hour rows between unbounded preceding and current row) as `10`,
    sum(b2) over (order by hour rows between unbounded preceding and current row) as `20`,
    sum(b3) over (order by hour rows between unbounded preceding and current row) as `40`,
    sum(b4) over (order by hour rows between unbounded preceding and current row) as `80`,
    sum(b5) over (order by hour rows between unbounded preceding and current row) as `160`,
    sum(b6) over (order by hour rows between unbounded preceding and current row) as `320`,
    sum(b7) over (order by hour rows between unbounded preceding and current row) as `640`,
    sum(b8) over (order by hour rows between unbounded preceding and current row) as `1280`,
    sum(b9) over (order by hour rows between unbounded preceding and current row) as `1280+`
  from by_hour
)
-- What waits at the end of the log grows older after it, but nobody knows whether it still waits.
select
  timestamp_seconds(div(at_ns, 1000000000)) as at,
  `5` + `10` + `20` + `40` + `80` + `160` + `320` + `640` + `1280` + `1280+` as `T`,
  `5`, `10`, `20`, `40`, `80`, `160`, `320`, `640`, `1280`, `1280+`
from shape
cross join newest
where at_ns <= newest.ns and (:since is null or at_ns >= :since) and (:until is null or at_ns < :until)
order by at_ns
