-- Deliveries that ended, with what they say of their destination.
-- answered: the destination answered for good; false: it could not be reached, or put it off; null: it was not asked.
-- quick: the delivery took less than 60 s. network: its reason is of that class.
select
  domain, host, queue, key, id, delivery, start_ns, done_ns, template,
  coalesce(class = 'network', false) as network,
  case
    when result = 'success' then true
    when result = 'deferral' then false
    -- A failure with a temporary code is mail that waited too long: the destination's answer was a deferral.
    when class = 'network' or startswith(code, '4.') then false
    when startswith(reason, 'The_administrator_has_asked_for_this_message_to_be_returned.') then null
    else true
  end as answered,
  coalesce(try_subtract(done_ns, start_ns) < 60000000000, true) as quick
from deliveries
where result in ('success', 'failure', 'deferral') and done_ns is not null
