select "ordered", w from keyed order by "ordered" desc, w limit 10
