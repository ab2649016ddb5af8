#pragma once
// Means and sums of squared deviations of parts, joined without losing digits.

namespace acl_sim {

struct Moments {
  double count = 0, mean = 0, m2 = 0;

  // Of n values, from sums of their deviations from a center near the mean, and of the squares of those.
  static Moments around(double n, double center, double sum, double sum_of_squares) {
    return {n, center + sum / n, sum_of_squares - sum * sum / n};
  }

  void join(const Moments& other) {
    const double weight = other.count / (count + other.count), delta = other.mean - mean;
    mean += delta * weight;
    m2 += other.m2 + delta * delta * count * weight;
    count += other.count;
  }
};

}  // namespace acl_sim
