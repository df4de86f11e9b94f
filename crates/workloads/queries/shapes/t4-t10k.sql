select count(*), sum(c), sum(s), max(m)
from (select t4, t10k, count(*) as c, sum(v) as s, max(w) as m from keyed group by t4, t10k) as g
