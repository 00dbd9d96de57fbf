with times as (
  -- In nanoseconds; null where the log begins after the message's birth.
  select
    domain,
    try_subtract(start_ns, birth_ns) as queue,
    try_subtract(done_ns, start_ns) as delivery
  from deliveries
  where result = 'success'
),
ranked as (
  select
    domain, queue, delivery,
    row_number() over (partition by domain order by queue nulls last) as queue_place,
    count(queue) over (partition by domain) as queue_number,
    row_number() over (partition by domain order by delivery nulls last) as delivery_place,
    count(delivery) over (partition by domain) as delivery_number
  from times
)
select
  domain, count(*) as deliveries,
  seconds(max(case when queue_place = div(queue_number * 50 + 99, 100) then queue end)) as queue_p50,
  seconds(max(case when queue_place = div(queue_number * 90 + 99, 100) then queue end)) as queue_p90,
  seconds(max(case when queue_place = div(queue_number * 99 + 99, 100) then queue end)) as queue_p99,
  seconds(max(case when queue_place = div(queue_number * 100 + 99, 100) then queue end)) as queue_max,
  seconds(max(case when delivery_place = div(delivery_number * 50 + 99, 100) then delivery end)) as delivery_p50,
  seconds(max(case when delivery_place = div(delivery_number * 90 + 99, 100) then delivery end)) as delivery_p90,
  seconds(max(case when delivery_place = div(delivery_number * 99 + 99, 100) then delivery end)) as delivery_p99,
  seconds(max(case when delivery_place = div(delivery_number * 100 + 99, 100) then delivery end)) as delivery_max
from ranked
group by domain
order by deliveries desc, domain
