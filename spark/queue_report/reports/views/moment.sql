-- One row, ns: the moment that is asked for, or else the newest stamp.
select coalesce(:at, newest.ns, 0) as ns
from newest
