select count(*), sum(m)
from (select i10k, median(cast(w as double)) as m from keyed group by i10k) as g
