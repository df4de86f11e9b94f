select case when v < 100 then 'low' when v < 500 then 'middle' when v < 900 then 'high' else 'top' end as k, count(*), sum(w), round(stddev(w), 3)
from keyed
group by 1
order by 1
