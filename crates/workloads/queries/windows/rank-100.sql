select sum(w) from (select rank() over (partition by g order by v) w from series) q
