select t4, round(corr(cast(v as double), cast(w as double)), 6), round(covar_samp(cast(w as double), cast(v as double)), 3),
  round(regr_slope(cast(w as double), cast(v as double)), 6), round(regr_r2(cast(v as double), cast(w as double)), 9)
from keyed
group by t4
order by t4
