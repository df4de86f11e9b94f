select count(*), sum(w)
from keyed as a
where v < 500 and exists (select 1 from keyed as b where b.i10k = a.i10k and b.i4 <> a.i4 and b.v >= 500)
