select sum(w) from (select row_number() over (partition by g order by o) w from series) q
