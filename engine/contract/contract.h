#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <truefuse/contract/layouts.h>
#include <truefuse/contract/scalars.h>
#include <truefuse/core/dtype.h>

namespace truefuse {

/// One dimension: `factor` times the product of the symbols. `hidden` is 1 times one symbol, `4`
/// has no symbol.
struct DimSpec {
  std::int64_t factor = 1;           ///< At least 1.
  std::vector<std::size_t> symbols;  ///< Indices into Contract::symbols().

  bool is_plain() const { return factor == 1 && symbols.size() == 1; }
  friend bool operator==(const DimSpec&, const DimSpec&) = default;
};

struct TensorSpec {
  std::vector<DType> dtypes;        ///< Any one of these; empty if `like` says it.
  std::optional<std::size_t> like;  ///< Index of an earlier argument whose dtype it must have.
  std::optional<std::size_t> pack;  ///< Symbol of the leading dimensions.
  std::vector<DimSpec> dims;        ///< The dimensions after the pack, outermost first.
  Layout layout = Layout::contiguous;
  bool mutated = false;        ///< Written in place.
  std::int64_t alignment = 1;  ///< Of the first element's address, in bytes; a power of two.
};

struct ArgumentSpec {
  std::string name;
  bool optional = false;
  std::variant<TensorSpec, ScalarSpec> spec;
  std::optional<std::size_t> symbol;  ///< Of an integer that is a size.

  /// Null for a scalar.
  const TensorSpec* tensor() const { return std::get_if<TensorSpec>(&spec); }
  bool is_mutated() const { return tensor() != nullptr && tensor()->mutated; }
};

/// An output has one dtype (or is `like` an argument), known sizes, and is contiguous or dense.
struct OutputSpec {
  std::string name;
  TensorSpec tensor;
  std::optional<std::size_t> wanted;  ///< Index of the bool that says whether it is computed.
};

/// A name in brackets: a size, or the leading sizes that `name..` stands for.
struct Symbol {
  std::string name;
  bool is_pack = false;
};

/// What an operator accepts and what it returns, parsed from text once. bias_gelu's:
///
///   x: f32|f64|f16|bf16 [rows.., hidden] rows-strided; bias: like x [hidden] strided;
///   approximate: "tanh"|"none" -> out: like x [rows.., hidden] contiguous
///
/// Grammar (white space is free):
///
///   contract  = argument {(";" | "·") argument} ["->" output {(";" | "·") output}]
///   argument  = NAME ":" (tensor {flag} | scalar ["=" NAME] ["optional"])
///   output    = NAME ":" tensor ["if" NAME]
///   tensor    = (DTYPE {"|" DTYPE} | "like" NAME) "[" [dims] "]" layout
///   dims      = (NAME ".." | product) {"," product}
///   product   = (NAME | NUMBER) {"*" (NAME | NUMBER)}
///   layout    = "contiguous" | "rows-strided" | "batch-strided" | "strided" | "dense"
///   flag      = "optional" | "mutated" | "aligned" "(" BYTES ")"
///   scalar    = STRING {"|" STRING} | "text" | "int" [range] | "float" [range] | "bool"
///   range     = ("[" | "(") bound "," bound ("]" | ")")        bound = number | "inf" | "-inf"
///
/// - DTYPE is a short name of core/dtype.h: f32, bf16, f8e4m3, i64, u8, bool, ... `like x` asks for
///   the dtype of x, an earlier tensor that is always given.
/// - A name in brackets is bound to a size where it is first met and must be equal from there on.
///   `2*d` binds d too (the size must be a multiple of 2); a product of several names may only use
///   names that are bound already. An argument that is not given binds nothing.
/// - `rows..` stands for any number of leading dimensions, also none. In a second tensor the same
///   pack must match element by element.
/// - `int = heads`: the integer is the size `heads`, under the same rule. `text` is any string.
/// - Layouts: `contiguous` as PyTorch defines it; `rows-strided`: the last dimension has stride 1,
///   the others any stride; `batch-strided`: the first dimension has any stride, what is behind it
///   is contiguous; `strided`: any strides. Strides of dimensions of size 1 never matter.
/// - `dense` is for an output that is `like` an argument and has its dimensions: without gaps, the
///   dimensions in the order of that argument's strides (see dense_strides).
/// - `optional`: None is accepted. `mutated`: written in place, so its elements must lie at
/// distinct
///   addresses and apart from every other argument. `aligned(16)`: the first element's address is a
///   multiple of 16 bytes.
/// - An output `if wanted`, a bool argument, has the shape [0] where that is False.
/// - NaN lies in no range. A round bracket excludes its bound.
/// - All given tensors are on one device, which is cpu, cuda (CUDA, ROCm, DCU) or meta. Outputs are
///   on that device and contiguous or dense; their sizes are bound by arguments that are always
///   given.
class Contract {
 public:
  /// No arguments and no outputs.
  Contract() = default;

  /// Throws Error that says what was expected, with a caret under the place.
  static Contract parse(std::string_view text);

  const std::string& text() const { return text_; }
  const std::vector<ArgumentSpec>& arguments() const { return arguments_; }
  const std::vector<OutputSpec>& outputs() const { return outputs_; }
  const std::vector<Symbol>& symbols() const { return symbols_; }
  bool mutates() const { return mutates_; }  ///< Whether any argument is written in place.

  /// As the language writes them: "2*d"; "[rows.., hidden]".
  std::string text_of(const DimSpec& dim) const;
  std::string text_of_dims(const TensorSpec& tensor) const;

  /// The contract as data, enough to make arguments that it accepts and, for each rule, arguments
  /// that it refuses:
  ///
  ///   {"text": "...",
  ///    "symbols": [{"name": "rows", "pack": true}, {"name": "hidden", "pack": false}],
  ///    "arguments": [
  ///      {"name": "x", "optional": false, "kind": "tensor", "dtypes": ["f32", ...],
  ///       "torch_dtypes": ["float32", ...], "like": null, "pack": "rows",
  ///       "dims": [{"text": "hidden", "factor": 1, "symbols": ["hidden"]}],
  ///       "layout": "rows-strided", "mutated": false, "alignment": 1},
  ///      {"name": "approximate", "optional": false, "kind": "string", "values": ["tanh", "none"]},
  ///      {..., "kind": "int", "low": 0, "high": null},      both included, null: no limit; with
  ///                                             "symbol": "heads" if it is a size
  ///      {..., "kind": "float", "range": {"low": 0, "low_open": false, "high": null,
  ///                                       "high_open": true}},      or null: any value
  ///      {..., "kind": "bool"}, {..., "kind": "text"}],
  ///    "outputs": [{"name": "out", "if": null, "kind": "tensor", ... as above}]}
  std::string json() const;

 private:
  friend class ContractParser;

  std::string text_;
  std::vector<ArgumentSpec> arguments_;
  std::vector<OutputSpec> outputs_;
  std::vector<Symbol> symbols_;
  bool mutates_ = false;
};

}  // namespace truefuse
