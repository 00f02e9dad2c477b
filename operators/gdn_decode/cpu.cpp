// The CPU path: one piece of work is one key head of one sequence, with its value heads and all of
// its tokens. Compiled once, for every processor; the arithmetic is in cpu_kernel.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <truefuse/operator/operator.h>
#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/common_cpu/parallel.h>
#include <truefuse/operators/gdn_decode/cpu_kernel.h>
#include <truefuse/operators/gdn_decode/problem.h>

namespace truefuse {
namespace gdn_decode {
namespace {

constexpr float kL2Eps = 1e-6F;
constexpr std::int64_t kGrain = 16384;  // Elements of states worth a thread: about 10 microseconds.

const CpuKernels& kernels() {
#if defined(__x86_64__)
  switch (cpu::level()) {
    case cpu::Level::kAvx512:
      return kCpuKernels_avx512;
    case cpu::Level::kAvx2:
      return kCpuKernels_avx2;
    case cpu::Level::kBase:
      break;
  }
#endif
  return kCpuKernels_base;
}

constexpr std::int64_t padded(std::int64_t count) { return (count + kPad - 1) / kPad * kPad; }

std::byte* address(const TensorView& tensor, std::int64_t offset) {
  return static_cast<std::byte*>(tensor.data) +
         offset * static_cast<std::int64_t>(size_of(tensor.dtype));
}

/// `count` elements, one every `stride`, as they are.
struct Strided {
  std::byte* data;
  std::int64_t stride;
};

template <class Bits>
void copy_bits(const Strided& from, const Strided& to, std::int64_t count) {
  const auto* source = reinterpret_cast<const Bits*>(from.data);
  auto* target = reinterpret_cast<Bits*>(to.data);
  if (from.stride == 1 && to.stride == 1) {
    std::memmove(target, source, static_cast<std::size_t>(count) * sizeof(Bits));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) target[i * to.stride] = source[i * from.stride];
}

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }
/// exp(-exponent)
Decay decay_of(float exponent) {
  return exponent < 0.69F ? Decay{1, std::expm1(-exponent)} : Decay{0, std::exp(-exponent)};
}

/// One thread's work, with its memory.
class Worker {
 public:
  explicit Worker(const Problem& problem)
      : p_(problem),
        kernels_(kernels()),
        row_code_(type_code(p_.conv_state->dtype)),
        state_code_(type_code(p_.state->dtype)),
        row_size_(static_cast<std::int64_t>(size_of(p_.conv_state->dtype))),
        keys_(padded(p_.heads.K)),
        // The last value head may be widened alone, and what is written beyond it is its own.
        lanes_(2 * keys_ + padded((p_.heads.G - 1) * p_.heads.V + padded(p_.heads.V))),
        values_(padded(p_.heads.V)),
        columns_(p_.taps - 1 + p_.tokens) {
    const auto floats = [](std::int64_t count) {
      return std::vector<float>(static_cast<std::size_t>(count + kPad));
    };
    inputs_ = floats(columns_ * lanes_);
    convolved_ = floats(p_.tokens * lanes_);
    weights_ = floats(p_.taps * lanes_);
    bias_ = floats(p_.conv_bias != nullptr ? lanes_ : 0);
    decay_.resize(index(p_.tokens * padded(p_.heads.G)));
    beta_ = floats(p_.tokens * padded(p_.heads.G));
    core_ = floats(p_.tokens * p_.heads.G * values_);
    norm_weight_ = floats(values_);
    gate_ = floats(values_);
    if (p_.norm_weight != nullptr) {
      kernels_.widen[type_code(p_.norm_weight->dtype)](
          p_.norm_weight->data, stride_of(*p_.norm_weight, 0), norm_weight_.data(), p_.heads.V);
    }
  }

  void run(std::int64_t head, std::int64_t sequence) {
    const SequenceSlots slots = slots_of(p_, sequence);
    if (slots.is_padding()) {
      write_zeros(head, sequence);
      return;
    }
    load_weights(head);
    convolve(head, sequence, slots);
    make_gates(head, sequence);
    for (std::int64_t g = 0; g < p_.heads.G; ++g) step_state(head, g, sequence, slots);
    finish(head, sequence);
  }

 private:
  /// The channels of a key head are three runs: of its query, its key and its values.
  struct Run {
    std::int64_t lane;     ///< First in scratch memory.
    std::int64_t channel;  ///< First of conv_state and conv_weight.
    std::int64_t count;
    std::size_t segment;
  };
  std::array<Run, 3> runs(std::int64_t head) const {
    const auto& [H, G, K, V] = p_.heads;
    return {{{0, head * K, K, 0},
             {keys_, (H + head) * K, K, 1},
             {2 * keys_, 2 * H * K + head * G * V, G * V, 2}}};
  }

  /// Calls each(first, count, elements) for parts of a run that have one stride in the rows.
  template <class Each>
  void for_each_part(const Run& run, std::int64_t head, std::int64_t sequence, std::int64_t token,
                     const Each& each) const {
    const RowLayouts& rows = p_.layouts;
    const Place& place = run.segment == 0 ? rows.q : run.segment == 1 ? rows.k : rows.v;
    const bool is_value = run.segment == 2;
    const std::int64_t V = p_.heads.V;
    const bool joined = !is_value || p_.heads.G == 1 || place.group == V * place.inner;
    const std::int64_t count = joined ? run.count : V;
    for (std::int64_t first = 0; first < run.count; first += count) {
      each(first, count, in_row(place, head, is_value ? first / V : 0, sequence, token));
    }
  }

  /// The elements [head, group, ·] of a segment.
  Strided in_row(const Place& place, std::int64_t head, std::int64_t group, std::int64_t sequence,
                 std::int64_t token) const {
    const std::int64_t offset = p_.row_offset(place.tensor, sequence, token) + place.base +
                                head * place.head + group * place.group;
    return {address(*p_.rows[place.tensor].view, offset), place.inner};
  }

  Strided in_history(std::int64_t slot, std::int64_t channel, std::int64_t column) const {
    const TensorView& history = *p_.conv_state;
    const std::int64_t stride = stride_of(history, 1);
    return {address(history, slot * stride_of(history, 0) + channel * stride +
                                 column * stride_of(history, 2)),
            stride};
  }

  void load_weights(std::int64_t head) {
    if (head == head_of_weights_) return;
    head_of_weights_ = head;
    const TensorView& weight = *p_.conv_weight;
    for (const Run& run : runs(head)) {
      for (std::int64_t w = 0; w < p_.taps; ++w) {
        const std::int64_t first = run.channel * stride_of(weight, 0) + w * stride_of(weight, 1);
        kernels_.widen[row_code_](address(weight, first), stride_of(weight, 0),
                                  &weights_[index(w * lanes_ + run.lane)], run.count);
      }
      if (p_.conv_bias == nullptr) continue;
      const std::int64_t stride = stride_of(*p_.conv_bias, 0);
      kernels_.widen[row_code_](address(*p_.conv_bias, run.channel * stride), stride,
                                &bias_[index(run.lane)], run.count);
    }
  }

  void convolve(std::int64_t head, std::int64_t sequence, const SequenceSlots& slots) {
    for (const Run& run : runs(head)) {
      for (std::int64_t w = 0; w < p_.taps - 1; ++w) {
        const Strided from = in_history(slots.conv_read, run.channel, slots.window + w);
        kernels_.widen[row_code_](from.data, from.stride, &inputs_[index(w * lanes_ + run.lane)],
                                  run.count);
      }
      for (std::int64_t t = 0; t < p_.tokens; ++t) {
        float* const to = &inputs_[index((p_.taps - 1 + t) * lanes_ + run.lane)];
        for_each_part(run, head, sequence, t,
                      [&](std::int64_t first, std::int64_t count, const Strided& from) {
                        kernels_.widen[row_code_](from.data, from.stride, to + first, count);
                      });
      }
      if (slots.conv_write != SequenceSlots::kNone) write_history(run, head, sequence, slots);
    }
    for (std::int64_t t = 0; t < p_.tokens; ++t) {
      float* const y = &convolved_[index(t * lanes_)];
      kernels_.convolve(&inputs_[index(t * lanes_)], weights_.data(),
                        p_.conv_bias != nullptr ? bias_.data() : nullptr, lanes_,
                        static_cast<int>(p_.taps), y, lanes_);
      round_as_stored(y, lanes_);
      kernels_.silu(y, lanes_);
      round_as_stored(y, lanes_);
      for (float* vector : {y, y + keys_}) {
        for (std::int64_t i = p_.heads.K; i < keys_; ++i) vector[i] = 0;
      }
      const float scale = 1 / std::sqrt(static_cast<float>(p_.heads.K));
      kernels_.l2_normalise(y, p_.heads.K, kL2Eps, scale);
      kernels_.l2_normalise(y + keys_, p_.heads.K, kL2Eps, 1);
    }
  }

  /// The raw inputs, bit by bit: the history moves on and the tokens follow. Columns are written in
  /// ascending order, each from one that is not written before, so that it may happen in place.
  void write_history(const Run& run, std::int64_t head, std::int64_t sequence,
                     const SequenceSlots& slots) {
    const std::int64_t first_new = p_.speculative ? p_.taps - 2 : p_.history - p_.tokens;
    const std::int64_t shift = p_.speculative ? slots.window + 1 : p_.tokens;
    const std::int64_t end = p_.speculative ? p_.taps - 2 + p_.tokens : p_.history;
    for (std::int64_t column = 0; column < end; ++column) {
      const Strided to = in_history(slots.conv_write, run.channel, column);
      if (column < first_new) {
        copy(in_history(slots.conv_read, run.channel, column + shift), to, run.count);
        continue;
      }
      for_each_part(run, head, sequence, column - first_new,
                    [&](std::int64_t first, std::int64_t count, const Strided& from) {
                      copy(from, {to.data + first * to.stride * row_size_, to.stride}, count);
                    });
    }
  }

  void copy(const Strided& from, const Strided& to, std::int64_t count) const {
    row_size_ == 2 ? copy_bits<std::uint16_t>(from, to, count)
                   : copy_bits<std::uint32_t>(from, to, count);
  }

  void make_gates(std::int64_t head, std::int64_t sequence) {
    const std::int64_t G = p_.heads.G;
    std::vector<float>& dt = gate_scratch_[0];
    std::vector<float>& rate = gate_scratch_[1];
    std::vector<float>& a = gate_scratch_[2];
    for (std::vector<float>* scratch : {&dt, &rate, &a}) scratch->resize(index(padded(G)));
    const auto of_heads = [&](const TensorView& tensor, float* to) {
      const std::int64_t stride = stride_of(tensor, 0);
      kernels_.widen[type_code(tensor.dtype)](address(tensor, head * G * stride), stride, to, G);
    };
    of_heads(*p_.dt_bias, dt.data());
    of_heads(*p_.a_log, rate.data());
    for (std::int64_t t = 0; t < p_.tokens; ++t) {
      float* const beta = &beta_[index(t * padded(G))];
      Decay* const decay = &decay_[index(t * padded(G))];
      const auto widen = [&](const Place& place, float* to) {
        const Strided first = in_row(place, head, 0, sequence, t);
        kernels_.widen[row_code_](first.data, place.group, to, G);
      };
      widen(p_.layouts.b, beta);
      widen(p_.layouts.a, a.data());
      for (std::int64_t g = 0; g < G; ++g) {
        const std::size_t i = index(g);
        beta[g] = 1 / (1 + std::exp(-beta[g]));
        decay[g] = decay_of(std::exp(rate[i]) * softplus(a[i] + dt[i]));
      }
      round_as_stored(beta, G);
    }
  }

  void step_state(std::int64_t head, std::int64_t group, std::int64_t sequence,
                  const SequenceSlots& slots) {
    const auto& [H, G, K, V] = p_.heads;
    const std::int64_t slot_stride = stride_of(*p_.state, 0);
    const std::int64_t in_slot = (head * G + group) * K * V;
    const std::byte* from = address(*p_.state, slots.read * slot_stride + in_slot);
    for (std::int64_t t = 0; t < p_.tokens; ++t) {
      // Without speculation all tokens work in the place of the last one.
      const std::int64_t slot = write_slot(p_, sequence, p_.speculative ? t : p_.tokens - 1);
      std::byte* to = nullptr;
      if (slot != SequenceSlots::kNone) {
        to = address(*p_.state, slot * slot_stride + in_slot);
      } else {
        unwritten_.resize(index(K * V) * size_of(p_.state->dtype));
        to = unwritten_.data();
      }
      const float* const y = &convolved_[index(t * lanes_)];
      kernels_.delta_rule[state_code_][p_.keys_are_last ? 1 : 0](
          {from, to, y, y + keys_, y + 2 * keys_ + group * V,
           &core_[index((t * G + group) * values_)], decay_[index(t * padded(G) + group)],
           beta_[index(t * padded(G) + group)], K, V});
      from = to;
    }
  }

  void finish(std::int64_t head, std::int64_t sequence) {
    const auto& [H, G, K, V] = p_.heads;
    const bool rounds_product = p_.rounds_as_transformers && p_.norm_weight != nullptr &&
                                p_.norm_weight->dtype == p_.conv_state->dtype;
    for (std::int64_t t = 0; t < p_.tokens; ++t) {
      for (std::int64_t g = 0; g < G; ++g) {
        float* const core = &core_[index((t * G + g) * values_)];
        round_as_stored(core, V);
        if (p_.norm_weight != nullptr) {
          const Strided z = in_row(*p_.layouts.z, head, g, sequence, t);
          kernels_.widen[row_code_](z.data, z.stride, gate_.data(), V);
          kernels_.gated_norm({core, norm_weight_.data(), gate_.data(), core,
                               static_cast<float>(p_.norm_eps), p_.gate_is_sigmoid, V},
                              p_.rounds_as_transformers ? kernels_.round[row_code_] : nullptr,
                              rounds_product ? kernels_.round[row_code_] : nullptr);
        }
        kernels_.narrow[row_code_](core, address(*p_.out, out_offset(head, g, sequence, t)), V);
      }
    }
  }

  void write_zeros(std::int64_t head, std::int64_t sequence) const {
    for (std::int64_t t = 0; t < p_.tokens; ++t) {
      std::memset(address(*p_.out, out_offset(head, 0, sequence, t)), 0,
                  static_cast<std::size_t>(p_.heads.G * p_.heads.V * row_size_));
    }
  }

  std::int64_t out_offset(std::int64_t head, std::int64_t group, std::int64_t sequence,
                          std::int64_t token) const {
    return (((sequence * p_.tokens + token) * p_.heads.H + head) * p_.heads.G + group) * p_.heads.V;
  }

  /// A rounding point of transformers: to the dtype of the rows.
  void round_as_stored(float* values, std::int64_t count) const {
    if (p_.rounds_as_transformers) kernels_.round[row_code_](values, count);
  }

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  const Problem& p_;
  const CpuKernels& kernels_;
  const std::size_t row_code_, state_code_;
  const std::int64_t row_size_;
  const std::int64_t keys_;     ///< K, padded.
  const std::int64_t lanes_;    ///< Of one column of scratch memory: q, k and the values of a head.
  const std::int64_t values_;   ///< V, padded.
  const std::int64_t columns_;  ///< W - 1 inputs before the tokens, and the tokens.
  std::vector<float> inputs_;   ///< [columns, lanes]
  std::vector<float> convolved_;       ///< [tokens, lanes]; q and k normalised.
  std::vector<float> weights_, bias_;  ///< [taps, lanes], [lanes]
  std::int64_t head_of_weights_ = -1;
  std::vector<Decay> decay_;               ///< [tokens, padded G]
  std::vector<float> beta_;                ///< [tokens, padded G]
  std::vector<float> core_;                ///< [tokens, G, padded V]
  std::vector<float> norm_weight_, gate_;  ///< [padded V]
  std::array<std::vector<float>, 3> gate_scratch_;
  std::vector<std::byte> unwritten_;  ///< A state that no slot keeps.
};

}  // namespace
}  // namespace gdn_decode

/// The CPU path of the registration: see binding::CpuKernel.
void gdn_decode_cpu(const Call& call) {
  using namespace gdn_decode;
  const Problem problem(call);
  if (problem.empty()) return;
  const HeadSizes& heads = problem.heads;
  const std::int64_t piece =
      std::max<std::int64_t>(problem.tokens * heads.G * heads.K * heads.V, 1);
  // Sequences of one head lie next to each other, so that its weights are converted once.
  cpu::parallel_for(heads.H * problem.batch, std::max<std::int64_t>(kGrain / piece, 1),
                    [&](std::int64_t begin, std::int64_t end) {
                      Worker worker(problem);
                      for (std::int64_t i = begin; i < end; ++i) {
                        worker.run(i / problem.batch, i % problem.batch);
                      }
                    });
}

}  // namespace truefuse
