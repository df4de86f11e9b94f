select sum(w) from (select ntile(10) over (partition by g order by o) w from series) q
