select count(*), sum(c), sum(s), max(m)
from (select t10k, count(*) as c, sum(v) as s, max(w) as m from keyed group by t10k) as g
