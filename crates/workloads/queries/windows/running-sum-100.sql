select sum(w) from (select sum(v) over (partition by g order by o) w from series) q
