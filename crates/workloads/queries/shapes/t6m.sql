select count(*), sum(c), sum(s), max(m)
from (select t6m, count(*) as c, sum(v) as s, max(w) as m from keyed group by t6m) as g
