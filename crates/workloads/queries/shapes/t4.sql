select count(*), sum(c), sum(s), max(m)
from (select t4, count(*) as c, sum(v) as s, max(w) as m from keyed group by t4) as g
