select count(*), sum(c), sum(s)
from (select substr(t1500k, 5, 4) as part, count(*) as c, sum(v) as s from keyed group by substr(t1500k, 5, 4)) as g
