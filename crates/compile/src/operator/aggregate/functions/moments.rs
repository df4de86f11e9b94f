//! Moments of values and of pairs of values: how those of two sets are merged, and what is computed of them.

use kelpie_kir::builder::V;
use kelpie_kir::{CompareOp, UnaryOp};

use crate::context::{Context, Lowered, Repr};
use crate::plan::PairStatistic;

/// A mean, and what it lost to rounding.
type Mean = (V, V);

/// The mean of two sets of values, of which the second has a `weight` of all, and the distance of their means. It is kept as a sum of two
/// `f64`, whose second is what the first lost to rounding (Knuth's two-sum): else distances from a mean that is large against the deviation
/// would be no better than the mean's last bit.
fn merged_mean(cx: &mut Context<'_>, (mean, lost): Mean, (other, other_lost): Mean, weight: V) -> (Mean, V) {
    let b = &mut *cx.builder;
    let distance = b.sub(other, mean);
    let correction = b.sub(other_lost, lost);
    let distance = b.add(distance, correction);
    let step = b.mul(distance, weight);
    let new_mean = b.add(mean, step);
    let taken = b.sub(new_mean, mean);
    let rest = b.sub(new_mean, taken);
    let (mean_error, step_error) = (b.sub(mean, rest), b.sub(step, taken));
    let error = b.add(mean_error, step_error);
    ((new_mean, b.add(lost, error)), distance)
}

/// What is added to the products of distances within two sets by the distances between them.
fn merged_products(cx: &mut Context<'_>, sums: (V, V), distances: (V, V), weighted: V) -> V {
    let b = &mut *cx.builder;
    let product = b.mul(distances.0, distances.1);
    let between = b.mul(product, weighted);
    let within = b.add(sums.0, sums.1);
    b.add(within, between)
}

/// The parts of two sets together, where neither has no values.
fn chosen(cx: &mut Context<'_>, old: &[V], new: &[V], merged: &[V]) -> Vec<V> {
    let b = &mut *cx.builder;
    let zero = b.f64(0.0);
    let (none, first) = (b.eq(new[0], zero), b.eq(old[0], zero));
    let mut choose = |((old, new), merged): ((&V, &V), &V)| {
        let present = b.select(first, *new, *merged);
        b.select(none, *old, present)
    };
    old.iter().zip(new).zip(merged).map(&mut choose).collect()
}

/// Merges the moments of two sets of values (Chan, Golub and LeVeque 1979; with a single value this is Welford's update).
pub(super) fn combine_moments(cx: &mut Context<'_>, old: &[V], new: &[V]) -> Vec<V> {
    let (&[count, mean, lost, squares], &[added, other_mean, other_lost, other_squares]) = (old, new) else {
        cx.impossible("moments of other than four parts");
        return old.to_vec();
    };
    let total = cx.builder.add(count, added);
    let weight = cx.builder.div(added, total);
    let ((mean, lost), distance) = merged_mean(cx, (mean, lost), (other_mean, other_lost), weight);
    let weighted = cx.builder.mul(count, weight);
    let squares = merged_products(cx, (squares, other_squares), (distance, distance), weighted);
    chosen(cx, old, new, &[total, mean, lost, squares])
}

/// The same of pairs of values (Pébay 2008 has the products).
pub(super) fn combine_pair_moments(cx: &mut Context<'_>, old: &[V], new: &[V]) -> Vec<V> {
    let (&[count, y, lost_y, x, lost_x, yy, xx, xy], &[added, v, lost_v, u, lost_u, vv, uu, uv]) = (old, new)
    else {
        cx.impossible("moments of pairs of other than eight parts");
        return old.to_vec();
    };
    let total = cx.builder.add(count, added);
    let weight = cx.builder.div(added, total);
    let ((y, lost_y), by_y) = merged_mean(cx, (y, lost_y), (v, lost_v), weight);
    let ((x, lost_x), by_x) = merged_mean(cx, (x, lost_x), (u, lost_u), weight);
    let weighted = cx.builder.mul(count, weight);
    let yy = merged_products(cx, (yy, vv), (by_y, by_y), weighted);
    let xx = merged_products(cx, (xx, uu), (by_x, by_x), weighted);
    let xy = merged_products(cx, (xy, uv), (by_x, by_y), weighted);
    chosen(cx, old, new, &[total, y, lost_y, x, lost_x, yy, xx, xy])
}

/// The parts of one pair.
pub(super) fn of_pair(cx: &mut Context<'_>, (first, second): (V, V)) -> Vec<V> {
    let b = &mut *cx.builder;
    let (one, zero) = (b.f64(1.0), b.f64(0.0));
    // No distances; of what is not finite NaN, also beside others.
    let (of_first, of_second) = (b.sub(first, first), b.sub(second, second));
    let product = b.add(of_first, of_second);
    vec![one, first, zero, second, zero, of_first, of_second, product]
}

/// A statistic of a cell's pairs.
pub(super) fn statistic(cx: &mut Context<'_>, parts: &[V], statistic: PairStatistic) -> Lowered {
    use PairStatistic::*;
    let &[count, y, _, x, _, yy, xx, xy] = parts else {
        let zero = cx.builder.f64(0.0);
        return Lowered { repr: Repr::Scalar(zero), valid: None, range: None };
    };
    let b = &mut *cx.builder;
    let (zero, one) = (b.f64(0.0), b.f64(1.0));
    let (any, several) = (b.compare(CompareOp::Gt, count, zero), b.compare(CompareOp::Gt, count, one));
    let (of_xy, of_xx, of_yy) = (b.div(xy, count), b.div(xx, count), b.div(yy, count));
    let (x_varies, y_varies) = (b.ne(of_xx, zero), b.ne(of_yy, zero));
    let (value, valid) = match statistic {
        CovarianceSample => {
            let divisor = b.sub(count, one);
            (b.div(xy, divisor), several)
        }
        CovariancePopulation => (of_xy, any),
        Correlation => {
            let (of_x, of_y) = (b.unary(UnaryOp::Sqrt, of_xx), b.unary(UnaryOp::Sqrt, of_yy));
            let quotient = b.div(of_xy, of_y);
            let quotient = b.div(quotient, of_x);
            // As DataFusion has it: NaN where both are, NULL where one of them is.
            let (no_x, no_y) = (b.ne(x, x), b.ne(y, y));
            let (both, one_of) = (b.and(no_x, no_y), b.or(no_x, no_y));
            let is_some = b.not(one_of);
            let varies = b.and(x_varies, y_varies);
            let valid = b.and(several, varies);
            let valid = b.and(valid, is_some);
            let nan = b.add(x, y);
            (b.select(both, nan, quotient), b.or(both, valid))
        }
        Slope => (b.div(of_xy, of_xx), b.and(several, x_varies)),
        Intercept => {
            let slope = b.div(of_xy, of_xx);
            let at_mean = b.mul(slope, x);
            (b.sub(y, at_mean), b.and(several, x_varies))
        }
        Determination => {
            let (square, product) = (b.mul(of_xy, of_xy), b.mul(of_xx, of_yy));
            let varies = b.and(x_varies, y_varies);
            (b.div(square, product), b.and(several, varies))
        }
        MeanX => (x, any),
        MeanY => (y, any),
        SquaresX => (xx, any),
        SquaresY => (yy, any),
        Products => (xy, any),
    };
    Lowered { repr: Repr::Scalar(value), valid: Some(valid), range: None }
}
