#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <truefuse/expression/expression.h>
#include <truefuse/operator/operator.h>

namespace truefuse::description {

/// One number that is known of a call before it is planned.
struct Fact {
  enum class Kind : std::uint8_t {
    size,  ///< Of dimension `index`, counted from the last, divided by `divisor`.
    pack,  ///< The product of the sizes in front of the last `index`.
    integer,
    boolean,
    word,  ///< Of a scalar argument; the position of a word in its list.
    dtype,
    bytes,
    elements,
    given,
    alignment,
    row_alignment,
    stride,  ///< Of a tensor.
    multiprocessors,
    wave,
    max_shared_bytes,
    max_shared_bytes_opt_in,  ///< Of the device.
  };
  Kind kind;
  std::size_t tensor = 0;  ///< Argument; outputs follow them.
  std::int64_t index = 0;
  std::int64_t divisor = 1;

  friend bool operator==(const Fact&, const Fact&) = default;
};

/// The facts of a contract by the names that expressions use, collected as they are asked for.
///
///   hidden                 a size; for `rows..` the product of all its dimensions
///   eps                    an argument: an int, a bool (1 or 0), a word (its position in the list)
///   x.dtype                its number as in truefuse::DType, f64 0, f32 1, f16 2, bf16 3, ...
///   x.bytes                of one element
///   x.elements  x.given    how many; 0 where an optional tensor is not given
///   x.stride(i)            in elements; i counts from 0, from the end if negative
///   x.size(i)
///   x.alignment            of the first element, in bytes: the largest power of two, at most 256
///   x.row_alignment        of the first elements of all rows, whose own stride is 1
///   device.multiprocessors, .wave, .max_shared_bytes, .max_shared_bytes_opt_in
class Facts {
 public:
  explicit Facts(const Contract& contract) : contract_(contract) {}

  /// The position of the fact that a reference means. Throws Error with a sentence if there is none
  /// or if a size is bound by optional arguments alone; `others` are further names for that
  /// sentence.
  std::size_t find(const Reference& reference, const std::vector<std::string>& others);

  /// Of a word that the reference may be compared with. Throws Error if it can never be that.
  std::int64_t number_of_word(const Reference& reference, const std::string& word) const;

  /// Nothing if no tensor (argument or output) has that name.
  std::optional<std::size_t> tensor_named(const std::string& name) const;
  const TensorSpec& spec(std::size_t tensor) const;

  /// Names for a sentence that says what there is.
  std::string known(const std::vector<std::string>& others) const;

  std::size_t size() const { return facts_.size(); }
  void evaluate(const Call& call, const DeviceFacts& device, std::int64_t* values) const;

 private:
  Fact fact_of(const Reference& reference, const std::vector<std::string>& others) const;
  std::optional<Fact> size_named(const std::string& name) const;
  Fact property(std::size_t tensor, const Reference& reference) const;

  const Contract& contract_;
  std::vector<Fact> facts_;
};

}  // namespace truefuse::description
