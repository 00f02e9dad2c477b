#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <truefuse/core/tensor.h>

namespace truefuse {

/// The rows of a tensor [rows.., columns] whose leading dimensions have any strides, merged where
/// one stride describes two of them.
class Rows {
 public:
  /// Of a tensor with at least one dimension. The last dimension is the row itself.
  explicit Rows(const TensorView& tensor);

  std::int64_t count() const { return count_; }
  std::int64_t columns() const { return columns_; }

  /// The dimensions that are left, innermost first; none where there is only one row.
  std::size_t dims() const { return dims_; }
  std::int64_t size(std::size_t dim) const { return sizes_[dim]; }
  std::int64_t stride(std::size_t dim) const { return strides_[dim]; }

  /// Neighbouring rows at one distance from each other.
  struct Run {
    std::int64_t offset;  ///< Of the first row's first element, in elements.
    std::int64_t stride;  ///< From row to row, in elements.
    std::int64_t length;  ///< Rows, at least 1.
  };

  /// The longest run that begins at `row`. No dimension of the tensor may be empty.
  Run run_from(std::int64_t row) const;

  /// Whether all elements lie one after the other.
  bool dense() const { return dims_ == 0 || (dims_ == 1 && strides_[0] == columns_); }

 private:
  std::array<std::int64_t, kMaxDims> sizes_;    // Innermost first.
  std::array<std::int64_t, kMaxDims> strides_;  // Innermost first.
  std::size_t dims_ = 0;
  std::int64_t count_ = 1;
  std::int64_t columns_;
};

}  // namespace truefuse
