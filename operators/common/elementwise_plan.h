#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/core/tensor.h>
#include <truefuse/operator/operator.h>
#include <truefuse/operators/common/elementwise_grid.h>

/// The host side of elementwise.h: operators that make each element of their outputs from the
/// elements at the same place of their inputs.
namespace truefuse::common {

inline constexpr std::size_t kMaxOperands = 5;

/// A tensor seen through the common sizes: where it begins and its strides, in elements.
struct Operand {
  std::byte* data;
  std::array<std::int64_t, kMaxDims> strides;

  Operand() = default;  // A call fills in as many strides as there are dimensions.
  explicit Operand(const TensorView& tensor);
};

/// All operands of a call walked together: their dimensions in the order of the first operand's
/// strides, merged where one stride describes two of them in every operand.
class Space {
 public:
  /// Outputs come first. All operands have `sizes`.
  Space(DType dtype, std::span<const std::int64_t> sizes, std::span<const Operand> operands);

  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return elements_; }
  std::size_t operands() const { return operands_; }
  std::byte* data(std::size_t operand) const { return data_[operand]; }

  /// Dimension 0 is the innermost, and is there if there are elements.
  std::size_t dims() const { return dims_; }
  std::int64_t size(std::size_t dim) const { return sizes_[dim]; }
  std::int64_t stride(std::size_t operand, std::size_t dim) const { return strides_[operand][dim]; }

  /// Whether an operand can be accessed in vectors of 16 bytes, and whether two can whose elements
  /// take turns.
  bool is_vector(std::size_t operand) const;
  bool are_pairs(std::size_t one, std::size_t other) const;

 private:
  bool rows_are_vectors(const std::byte* data, std::size_t operand) const;
  void add(std::int64_t size, std::span<const Operand> operands, std::size_t dim);

  DType dtype_;
  std::int64_t elements_ = 1;
  std::size_t operands_;
  std::size_t dims_ = 0;
  std::array<std::byte*, kMaxOperands> data_;
  std::array<std::int64_t, kMaxDims> sizes_;
  std::array<std::array<std::int64_t, kMaxDims>, kMaxOperands> strides_;
};

/// What selects the compiled kernel.
struct ElementwiseForm {
  DType dtype;
  std::size_t inputs;
  bool vectorised;  ///< Whole vectors; else single elements.
  int row_dims;     ///< 0: no gaps in any operand; 1, and short; or kMaxRowDims.
  LaunchPolicy policy;

  std::int64_t elements_per_access() const;
  std::string label() const;  ///< Such as "bf16 vector dense".
  bool plain() const { return vectorised && row_dims <= 1; }
};

/// The constants that elementwise.h asks for; those of the operator follow.
std::vector<std::string> elementwise_constants();
Variant elementwise_variant(const ElementwiseForm& form);

/// All forms of an operator's kernel of so many inputs.
std::vector<ElementwiseForm> elementwise_forms(std::string_view op_name, std::size_t inputs,
                                               const DeviceFacts& device);

/// Whole vectors where every operand allows them, but for operand `loose`, if any, which the kernel
/// reads with any strides.
ElementwiseForm elementwise_form(std::string_view op_name, const Space& space, std::size_t inputs,
                                 const DeviceFacts& device, std::size_t loose = kMaxOperands);

/// The form in vectors, or in single elements.
ElementwiseForm elementwise_form(std::string_view op_name, DType dtype, std::size_t inputs,
                                 bool vectorised, int row_dims, const DeviceFacts& device);

/// How many dimensions of rows the kernel has to know. Vectors without gaps have none.
int row_dims(const Space& space, bool vectorised, std::size_t loose);

/// Fills in the grid, the block and, behind the parameters that are there, the ElementwiseGrid.
/// Throws Error in the name of the operator for more dimensions or tiles than a kernel walks over.
void add_elementwise_grid(std::string_view op_name, const Space& space, const ElementwiseForm& form,
                          std::size_t loose, Launch& launch);

}  // namespace truefuse::common
