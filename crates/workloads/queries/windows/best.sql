select count(*) n, sum(o) s from (select o, dense_rank() over (partition by m order by v) w from series) q where w = 1
