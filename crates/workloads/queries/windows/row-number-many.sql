select sum(w) from (select row_number() over (partition by p order by o) w from series) q
