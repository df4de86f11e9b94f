select count(*), sum(c), sum(s), max(m)
from (select heavy, count(*) as c, sum(v) as s, max(w) as m from keyed group by heavy) as g
