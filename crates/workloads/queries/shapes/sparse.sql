select count(*), sum(w), sum(a)
from keyed
join sparse on keyed.sparse = sparse.k
