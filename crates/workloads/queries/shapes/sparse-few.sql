select count(*), sum(w)
from keyed
join sparse on keyed.sparse = sparse.k
where a < 20
