select sum(w) from (select sum(v) over (partition by g order by d range between interval '30 days' preceding and current row) w from series) q
