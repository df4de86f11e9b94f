select sum(w) from (select sum(v) over (partition by p order by o) w from series) q
