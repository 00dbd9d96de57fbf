-- Messages that came in, by bin of their birth.
select div(ns - {begin}, {length}) as bin, count(*) as messages, sum(bytes) as bytes
from (
    select birth_ns as ns, bytes from messages where birth_ns >= {begin} and birth_ns < {end}
    union all
    select birth_ns, bytes from pending where what = 'message' and birth_ns >= {begin} and birth_ns < {end}
) as born
group by div(ns - {begin}, {length})
order by bin
