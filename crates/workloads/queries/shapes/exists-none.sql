select count(*), sum(w)
from keyed as a
where not exists (select 1 from keyed as b where b.i1500k = a.i1500k and b.t4 <> a.t4)
