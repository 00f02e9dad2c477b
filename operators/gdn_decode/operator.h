#pragma once

#include <truefuse/operator/operator.h>

namespace truefuse {

/// One decode step of a Gated DeltaNet layer: see the schema and the contract in operator.cpp, and
/// docs/gdn.md.
const Operator& gdn_decode_operator();

namespace gdn_decode {

/// Positions of the arguments in the schema.
enum Position : std::size_t {
  kQkvz,
  kBa,
  kConvState,
  kState,
  kConvWeight,
  kConvBias,
  kALog,
  kDtBias,
  kNormWeight,
  kQkvzLayout,
  kStateLayout,
  kNumKHeads,
  kNumVHeads,
  kHeadKDim,
  kHeadVDim,
  kRounding,
  kBaLayout,
  kZ,
  kZLayout,
  kA,
  kALayout,
  kStateIndices,
  kWriteIndices,
  kNumAccepted,
  kPadding,
  kNormEps,
  kGateActivation,
};

/// Pure: see Operator::plan.
void plan(const Call& call, const DeviceFacts& device, Plan& plan);

/// Of the models in use.
std::vector<Operator::NamedVariant> variants();

/// The names of a variant's constants, in order.
std::vector<std::string> constant_names();

/// Operator::check_arguments: layouts, channels, head sizes, buffers, what belongs together.
void check_arguments(const Call& call);

/// Operator::check_values: indices inside the pool, no slot written twice.
void check_values(const Call& call);

}  // namespace gdn_decode
}  // namespace truefuse
