-- Reasons that differ in names and numbers are one, as in the column template of failures and deferrals, and by the same
-- rules (spark/match/reasons.py). A pattern here looks at what is beside a match by matching it too, since not every
-- engine can look without: so some come twice, for neighbours that share what is between them. No pattern has a
-- backslash or a quote, which the engines read differently.
with said as (
  -- Most differ in an id that stands by itself; without that few are left.
  select
    regexp_replace(
      case
        when instr(reason, 'queued_as_queued_as_') > 0 then reason
        else regexp_replace(reason, '([_/(]queued_as_)[A-Za-z0-9]+([_/])', '$1ID$2')
      end,
      '_(?:[0-79][A-Za-z0-9]*[A-Za-z]|[A-RT-Za-z][A-Za-z0-9]*[0-9])[A-Za-z0-9]{6,}([_/])', '_ID$1'
    ) as nearly,
    reason,
    cast(done_ns as decimal(28, 0)) - start_ns as xdelay
  from deliveries
  where result = 'success'
),
nearly_one as (
  select nearly, count(*) as del, sum(xdelay) as xdelay, min(reason) as example
  from said
  group by nearly
),
marked as (
  -- Spaces, which a reason does not have, stand at both ends; other characters for brackets and quotes.
  select
    ' ' || translate(nearly, '[]' || chr(39), chr(2) || chr(3) || chr(4)) || ' ' as text,
    del, xdelay, example
  from nearly_one
),
addresses as (
  select
    regexp_replace(
      text,
      '<[^<>@]*@[^<>]*>|[^ _/<>(){},;:="@' || chr(2) || chr(3) || chr(4) || ']+@[A-Za-z0-9.-]*[A-Za-z0-9]', 'ADDRESS'
    ) as text,
    del, xdelay, example
  from marked
),
ips as (
  select
    regexp_replace(
      regexp_replace(
        regexp_replace(
          text,
          '([^A-Za-z0-9.])[0-9A-Fa-f]{1,4}:(?:(?:[0-9A-Fa-f]{1,4}:){0,6}:[0-9A-Fa-f:]*(?:[.][0-9]{1,3})*'
          || '|(?:[0-9A-Fa-f]{1,4}:){6}[0-9A-Fa-f]{1,4})', '$1IP'
        ),
        '([^A-Za-z0-9.])[0-9]{1,3}(?:[.][0-9]{1,3}){3}([^0-9.]|[.][^0-9])', '$1IP$2'
      ),
      '([^A-Za-z0-9.])[0-9]{1,3}(?:[.][0-9]{1,3}){3}([^0-9.]|[.][^0-9])', '$1IP$2'
    ) as text,
    del, xdelay, example
  from addresses
),
hosts as (
  select
    regexp_replace(
      regexp_replace(
        text,
        '([^A-Za-z0-9.-])[A-Za-z0-9][A-Za-z0-9-]*(?:[.][A-Za-z0-9-]+)*[.][A-Za-z]{2,}([^A-Za-z0-9-])', '$1HOST$2'
      ),
      '([^A-Za-z0-9.-])[A-Za-z0-9][A-Za-z0-9-]*(?:[.][A-Za-z0-9-]+)*[.][A-Za-z]{2,}([^A-Za-z0-9-])', '$1HOST$2'
    ) as text,
    del, xdelay, example
  from ips
),
ids as (
  -- chr(5): what begins here is no id. chr(6): eight characters or more begin here.
  select
    regexp_replace(
      translate(
        regexp_replace(
          regexp_replace(
            regexp_replace(
              text,
              '([^A-Za-z0-9.-])([245][0-9][0-9]-|8BITMIME|SMTPUTF8)', '$1' || chr(5) || '$2'
            ),
            '([^A-Za-z0-9.' || chr(5) || '-])([A-Za-z0-9][A-Za-z0-9.-]{7})', '$1' || chr(6) || '$2'
          ),
          chr(6) || '(?:[0-9][0-9.-]*[A-Za-z]|[A-Za-z][A-Za-z.-]*[0-9])[A-Za-z0-9]*(?:[.-]+[A-Za-z0-9]+)*', 'ID'
        ),
        chr(5) || chr(6), ''
      ),
      'queued_as_[A-Za-z0-9]+', 'queued_as_ID'
    ) as text,
    del, xdelay, example
  from hosts
),
codes as (
  -- chr(5): the three digits of a reply, or an RFC 3463 code, which stay.
  select
    regexp_replace(
      regexp_replace(
        regexp_replace(
          regexp_replace(
            text,
            '( |/|said:_|said:_[(])([245][0-9][0-9][^A-Za-z0-9.])', '$1' || chr(5) || '$2'
          ),
          '( |/|said:_|said:_[(])([245][0-9][0-9][^A-Za-z0-9.])', '$1' || chr(5) || '$2'
        ),
        '([^A-Za-z0-9.' || chr(5) || '])([245][.][0-9]{1,3}[.][0-9]{1,3}(?:[^0-9.]|[.][^0-9]))', '$1' || chr(5) || '$2'
      ),
      '([^A-Za-z0-9.' || chr(5) || '])([245][.][0-9]{1,3}[.][0-9]{1,3}(?:[^0-9.]|[.][^0-9]))', '$1' || chr(5) || '$2'
    ) as text,
    del, xdelay, example
  from ids
),
numbers as (
  select
    regexp_replace(
      regexp_replace(
        text,
        '([^A-Za-z0-9.' || chr(5) || '])[0-9]+(?:[.][0-9]+)*'
        || '(?:(?:[kKMG]?B|[smhdkKMG])([^A-Za-z0-9])|([^A-Za-z0-9.]|[.][^0-9]))', '$1N$2$3'
      ),
      '([^A-Za-z0-9.' || chr(5) || '])[0-9]+(?:[.][0-9]+)*'
      || '(?:(?:[kKMG]?B|[smhdkKMG])([^A-Za-z0-9])|([^A-Za-z0-9.]|[.][^0-9]))', '$1N$2$3'
    ) as text,
    del, xdelay, example
  from codes
),
templates as (
  select
    translate(
      substring(text, 2, length(text) - 2), chr(2) || chr(3) || chr(4) || chr(5), '[]' || chr(39)
    ) as reason,
    del, xdelay, example
  from numbers
)
select sum(del) as del, seconds(sum(xdelay)) as xdelay, reason, min(example) as example
from templates
group by reason
order by del desc, xdelay desc, reason
