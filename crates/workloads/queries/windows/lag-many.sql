select sum(w) from (select lag(v) over (partition by p order by o) w from series) q
