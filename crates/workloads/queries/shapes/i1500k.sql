select count(*), sum(c), sum(s), max(m)
from (select i1500k, count(*) as c, sum(v) as s, max(w) as m from keyed group by i1500k) as g
