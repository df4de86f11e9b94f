select sum(w) from (select min(v) over (order by o rows between 100 preceding and current row) w from series) q
