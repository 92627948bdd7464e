//! The spread between bursts.

use super::sample::Sample;

/// Returns the variance that the errors of the corrections add.
pub(super) fn taken_variance(sample: &Sample, slopes: &[f64]) -> f64 {
    let weight = |i: usize| slopes[i] * sample.scale(i) * sample.windows_of[i];
    let inputs = 0..slopes.len();
    let of_borders = inputs
        .clone()
        .map(|i| weight(i).powi(2) * sample.taken.border_variance[i]);
    // One share for all inputs: what it moves above and below a line belongs together.
    let of_hidden = sample.taken.hidden.iter().map(|(error, own)| {
        let moved: f64 = inputs.clone().map(|i| weight(i) * own[i]).sum();
        (moved * error).powi(2)
    });
    of_borders.sum::<f64>() + of_hidden.sum::<f64>()
}

/// Returns the part of the value that a burst adds, to first order. Inputs for which `even` holds are taken as spread
/// evenly over exposure.
pub(super) fn influence(
    sample: &Sample,
    slopes: &[f64],
    burst: usize,
    part: usize,
    even: impl Fn(usize) -> bool,
) -> f64 {
    let (row, length) = (sample.row(burst), sample.lengths[burst]);
    let mut sum = 0.0;
    for (i, slope) in slopes.iter().enumerate() {
        if !sample.parts[part].1[i] || *slope == 0.0 {
            continue;
        }
        let expected = if sample.exposures[i] > 0.0 {
            sample.sums[i] / sample.exposures[i] * length
        } else {
            0.0
        };
        let own = if even(i) { expected } else { row[i] };
        sum += slope
            * if sample.apart {
                sample.scale(i) * (own - expected)
            } else {
                own
            };
    }
    sum
}

/// Variance of a sum from its bursts' parts, and the degrees of freedom: groups are independent, and put together by
/// Welch and Satterthwaite. None for one burst.
pub(super) fn spread(sample: &Sample, part_of: impl Fn(usize, usize) -> f64) -> (f64, f64) {
    // Groups that hold all inputs are of one kind.
    if !sample.apart {
        let all = |range: std::ops::Range<usize>| {
            let part = |j: usize| sample.parts.partition_point(|p| p.0 <= j) - 1;
            variance_of_sum(range.map(|j| part_of(j, part(j))))
        };
        return all(0..sample.bursts());
    }
    let (mut variance, mut below) = (0.0, 0.0);
    let mut single = false;
    for part in 0..sample.parts.len() {
        let (own, freedom) = variance_of_sum(sample.part_range(part).map(|j| part_of(j, part)));
        variance += own;
        if freedom > 0.0 {
            below += own * own / freedom;
        } else {
            single = true;
        }
    }
    let freedom = match (single, below > 0.0) {
        (true, _) => 0.0,
        (false, true) => variance * variance / below,
        (false, false) => (sample.bursts() - sample.parts.len()) as f64,
    };
    (variance, freedom)
}

fn variance_of_sum(parts: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (mut number, mut sum) = (0.0, 0.0);
    for part in parts.clone() {
        number += 1.0;
        sum += part;
    }
    if number < 2.0 {
        return (0.0, 0.0);
    }
    let mean = sum / number;
    let squares: f64 = parts.map(|part| (part - mean) * (part - mean)).sum();
    (squares * number / (number - 1.0), number - 1.0)
}
