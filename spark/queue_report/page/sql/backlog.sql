-- The queue at the end of each bin, by age: how many messages more, or fewer, have an age than at the end of the bin
-- before. Bin -1 is what waited at the beginning. The last bin ends with the log.
--
-- A message has an age (from `after` to `before` seconds) during a stretch of its life. Where a stretch begins the
-- count goes up, where it ends, down.
with known as (
    select greatest(coalesce(birth_ns, first_ns), {floor}) as born_ns, done_ns from messages
    where done_ns > {begin} and coalesce(birth_ns, first_ns) < {end}
    union all
    select greatest(coalesce(birth_ns, first_ns), {floor}), cast({never} as bigint) from pending
    where what = 'message' and coalesce(birth_ns, first_ns) < {end}
),
ages as (
    select age, cast(after as bigint) * 1000000000 as after_ns, cast(before as bigint) * 1000000000 as before_ns
    from (values (0, 0, 600), (1, 600, 4800), (2, 4800, 19200), (3, 19200, 76800), (4, 76800, 2000000000))
        as t (age, after, before)
),
stretches as (
    select age, born_ns + after_ns as from_ns, least(done_ns, born_ns + before_ns) as to_ns
    from known cross join ages
),
steps as (
    select age,
        case when from_ns <= {begin} then -1 else div(from_ns - {begin} - 1, {length}) end as up,
        case when to_ns >= {end} then {number} else div(to_ns - {begin} - 1, {length}) end as down
    from stretches
    where from_ns < {end} and to_ns > {begin} and from_ns < to_ns
)
select age, bin, sum(step) as step
from (
    select age, up as bin, 1 as step from steps where up < down
    union all
    select age, down, -1 from steps where up < down
) as changes
group by age, bin
order by age, bin
