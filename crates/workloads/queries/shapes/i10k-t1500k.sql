select count(*), sum(c), sum(s), max(m)
from (select i10k, t1500k, count(*) as c, sum(v) as s, max(w) as m from keyed group by i10k, t1500k) as g
