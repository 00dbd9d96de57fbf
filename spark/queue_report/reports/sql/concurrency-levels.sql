with levels as (
  select
    host, queue, channel, ns,
    case
      when now >= allowed then 5
      when now = 0 then 0
      when now * 4 <= allowed then 1
      when now * 2 <= allowed then 2
      when now * 4 <= allowed * 3 then 3
      else 4
    end as place
  from samples
)
select
  host, queue, channel,
  case place
    when 0 then '0 %' when 1 then '1-25 %' when 2 then '26-50 %' when 3 then '51-75 %' when 4 then '76-99 %'
    else '100 %'
  end as level,
  seconds(sum(ns)) as seconds
from levels
group by host, queue, channel, place
order by host, queue, channel, levels.place
