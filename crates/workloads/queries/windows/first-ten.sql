select count(*) n, sum(v) s from (select v, rank() over (partition by h order by v, o) w from series) q where w <= 10
