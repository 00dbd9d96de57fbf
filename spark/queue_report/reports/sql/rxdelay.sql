select quotient(sum(xdelay), count(*) * 1000000000) as avg, count(*) as tries, recipient
from ended_deliveries
group by recipient
order by avg, tries, recipient
