select count(*), sum(c), sum(s), max(m)
from (select t1500k, count(*) as c, sum(v) as s, max(w) as m from keyed group by t1500k) as g
