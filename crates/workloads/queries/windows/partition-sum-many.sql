select sum(w) from (select sum(v) over (partition by p) w from series) q
