select count(*), sum(c), max(c)
from (select i10k, count(distinct i1500k) as c from keyed group by i10k) as g
