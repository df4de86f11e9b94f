select count(*), sum(c), sum(s)
from (select i1500k, i4, count(*) as c, sum(v) as s from keyed group by i1500k, i4) as g
