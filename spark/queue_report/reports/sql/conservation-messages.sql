with each as (
  select
    balance.host, balance.queue, balance.key, balance.sender, balance.outcome, balance.born_ns, balance.done_ns,
    problems.problem,
    case problems.problem
      when 'unknown message' then balance.unknown_message
      when 'lost' then balance.lost
      when 'unsettled' then balance.unsettled
      when 'never tried' then balance.never_tried
      when 'recipients differ' then balance.recipients_differ
      else balance.deliveries_differ
    end as number
  from balance
  cross join (values
    ('unknown message'), ('lost'), ('unsettled'), ('never tried'), ('recipients differ'), ('deliveries differ')
  ) as problems (problem)
  where coalesce(
    balance.unknown_message, balance.lost, balance.unsettled, balance.never_tried, balance.recipients_differ,
    balance.deliveries_differ
  ) is not null
)
select
  host, queue, key, sender,
  timestamp_micros(div(born_ns, 1000)) as born,
  timestamp_micros(div(done_ns, 1000)) as ended,
  outcome, problem, number as `count`
from each
where number is not null
order by host, queue, born nulls first, key, problem
