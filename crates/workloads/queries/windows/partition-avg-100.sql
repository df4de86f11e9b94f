select sum(w) from (select v - avg(v) over (partition by g) w from series) q
