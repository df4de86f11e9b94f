select t4, corr(cast(v as double), cast(w as double)), covar_samp(cast(w as double), cast(v as double)),
  regr_slope(cast(w as double), cast(v as double)), regr_r2(cast(v as double), cast(w as double))
from keyed
group by t4
