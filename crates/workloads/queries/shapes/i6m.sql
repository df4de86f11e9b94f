select count(*), sum(c), sum(s), max(m)
from (select i6m, count(*) as c, sum(v) as s, max(w) as m from keyed group by i6m) as g
