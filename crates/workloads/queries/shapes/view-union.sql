with sums as (select i10k, t4, sum(v) as s, count(*) as c from keyed where w >= 1000 group by i10k, t4)
select part, s
from (
  select t4 as part, sum(s) as s from sums group by t4
  union all
  select 'most', max(s) from sums
  union all
  select 'rows', sum(c) from sums
) as parts
order by part
