-- Some lines of each reason that could not be read, cut to a length.
select host, queue, file, line, reason, substring(text, 1, 300) as text
from (
    select host, queue, file, line, reason, text,
        row_number() over (partition by reason order by host, queue, file, line, text) as place
    from quarantine
) as ranked
where place <= {each}
order by place, reason, host, queue, file, line, text
limit {most}
