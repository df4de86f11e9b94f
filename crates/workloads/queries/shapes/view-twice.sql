with sums as (select i10k, sum(v) as s, max(w) as m from keyed group by i10k)
select count(*), sum(a.s), max(b.m)
from sums as a
join sums as b on a.i10k = b.i10k
where a.s > (select avg(s) from sums)
