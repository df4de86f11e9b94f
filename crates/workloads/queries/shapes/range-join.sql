select count(*), sum(k0)
from (select m, k0 from star where k17 < 100) as x
join dim17 on x.m between dim17.a and dim17.a + 1
