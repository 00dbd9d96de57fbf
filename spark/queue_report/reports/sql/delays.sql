with placed as (
  select
    queue, delivery,
    row_number() over (order by queue nulls last) as queue_place,
    count(queue) over () as queue_number,
    row_number() over (order by delivery nulls last) as delivery_place,
    count(delivery) over () as delivery_number
  from delivery_times
)
-- The smallest time that a share of all do not exceed.
select
  count(*) as deliveries,
  seconds(min(case when queue_place * 100 >= queue_number * 50 then queue end)) as queue_p50,
  seconds(min(case when queue_place * 100 >= queue_number * 90 then queue end)) as queue_p90,
  seconds(min(case when queue_place * 100 >= queue_number * 99 then queue end)) as queue_p99,
  seconds(max(queue)) as queue_max,
  seconds(min(case when delivery_place * 100 >= delivery_number * 50 then delivery end)) as delivery_p50,
  seconds(min(case when delivery_place * 100 >= delivery_number * 90 then delivery end)) as delivery_p90,
  seconds(min(case when delivery_place * 100 >= delivery_number * 99 then delivery end)) as delivery_p99,
  seconds(max(delivery)) as delivery_max
from placed
