select dim0.t, count(*), sum(m), sum(dim5.a)
from star
join dim0 on k0 = dim0.k
join dim1 on k1 = dim1.k
join dim2 on k2 = dim2.k
join dim3 on k3 = dim3.k
join dim4 on k4 = dim4.k
join dim5 on k5 = dim5.k
join dim6 on k6 = dim6.k
join dim7 on k7 = dim7.k
join dim8 on k8 = dim8.k
join dim9 on k9 = dim9.k
join dim10 on k10 = dim10.k
join dim11 on k11 = dim11.k
join dim12 on k12 = dim12.k
join dim13 on k13 = dim13.k
join dim14 on k14 = dim14.k
join dim15 on k15 = dim15.k
join dim16 on k16 = dim16.k
join dim17 on k17 = dim17.k
where dim2.t = 'text 3' and dim9.t <> 'text 1' and dim17.t in ('text 0', 'text 4', 'text 5')
group by dim0.t
order by dim0.t
