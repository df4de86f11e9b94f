select count(*), sum(w)
from keyed as a
where not exists (select 1 from keyed as b where b.i10k = a.i10k and b.v > a.v)
