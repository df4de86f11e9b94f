select count(*), sum(s), max(m)
from (select i6m as k, max(w) as m from keyed where w < 500 group by i6m) as few
left join (select i6m as k, sum(v) as s from keyed group by i6m) as facts on few.k = facts.k
