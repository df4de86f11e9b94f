select count(*), sum(c), sum(s), max(m)
from (select power, count(*) as c, sum(v) as s, max(w) as m from keyed group by power) as g
