select floor(sum(w)) from (select abs(v - avg(v) over (partition by g)) w from series) q
