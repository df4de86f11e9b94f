select count(*) n, sum(v) s from (select v, row_number() over (partition by m order by o desc) w from series) q where w <= 2
