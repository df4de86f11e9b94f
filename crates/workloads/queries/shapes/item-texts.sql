select count(*), sum(n), sum(x)
from (
  select kind, class, brand, item, count(*) as n, sum(m) as x
  from star
  join (
    select k, t as kind, 'class ' || cast(a % 100 as varchar) as class, 'brand ' || cast(a as varchar) as brand,
      'item ' || cast(k as varchar) as item
    from dim17
  ) as items on k17 = items.k
  group by rollup(kind, class, brand, item)
) as g
