select count(*), sum(c), sum(s), max(m)
from (select i4, count(*) as c, sum(v) as s, max(w) as m from keyed group by i4) as g
