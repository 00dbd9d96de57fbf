with ages as (
  -- A message is in a bucket from one age to another, in nanoseconds.
  select *
  from (values
    (0, 0, 300000000000), (1, 300000000000, 600000000000), (2, 600000000000, 1200000000000),
    (3, 1200000000000, 2400000000000), (4, 2400000000000, 4800000000000), (5, 4800000000000, 9600000000000),
    (6, 9600000000000, 19200000000000), (7, 19200000000000, 38400000000000), (8, 38400000000000, 76800000000000),
    (9, 76800000000000, cast(null as bigint))
  ) as buckets (bucket, from_ns, to_ns)
),
stays as (
  -- Messages that waited at some full hour; most have come and gone between two. The next full hour at or after a time
  -- is the one after the hour of the nanosecond before.
  select born_ns, done_ns
  from (select coalesce(birth_ns, first_ns) as born_ns, done_ns from lives) as bounds
  where done_ns is null or hour_of(born_ns - 1) < hour_of(done_ns - 1)
),
stretches as (
  -- From when until when a message was in a bucket.
  select
    ages.bucket,
    cast(stays.born_ns as decimal(28, 0)) + ages.from_ns as from_ns,
    least(
      cast(stays.done_ns as decimal(28, 0)), cast(stays.born_ns as decimal(28, 0)) + ages.to_ns
    ) as to_ns
  from stays
  cross join ages
),
hours as (
  select bucket, hour_of(from_ns - 1) + 1 as first, hour_of(to_ns - 1) + 1 as last
  from stretches
  where to_ns is null or to_ns > from_ns
),
steps as (
  select first as hour, bucket, 1 as step from hours where last is null or first < last
  union all
  select last as hour, bucket, -1 as step from hours where first < last
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
