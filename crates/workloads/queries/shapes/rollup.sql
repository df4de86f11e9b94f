select count(*), sum(n), sum(x)
from (select a, b, c, d, count(*) as n, sum(v) as x from levels group by rollup(a, b, c, d)) as g
