select sum(w) from (select row_number() over (order by o) w from series) q
