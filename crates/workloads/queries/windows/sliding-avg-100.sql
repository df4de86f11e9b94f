select floor(sum(w)) from (select avg(f) over (partition by g order by o rows between 10 preceding and 10 following) w from series) q
