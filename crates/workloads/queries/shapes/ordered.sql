select count(*), sum(c), sum(s), max(m)
from (select ordered, count(*) as c, sum(v) as s, max(w) as m from keyed group by ordered) as g
