#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/device/types.h>
#include <truefuse/operators/gdn_decode/operator.h>

/// A call of gdn_decode with memory of its own, and what it must give: mathematics in double on
/// elements found by the formulas of the two models, not by a layout.
namespace truefuse::gdn_testing {

inline constexpr std::string_view kInterleaved = "H (q=K | k=K | v=G V | z=G V)";
inline constexpr std::string_view kFlat = "q=H K | k=H K | v=H G V | z=H G V";

struct Shape {
  std::int64_t H = 2, G = 3, K = 16, V = 8, taps = 4, batch = 2, tokens = 1;
  std::int64_t slots = 4, history = 3;
  bool flat = false, keys_last = true, channels_last = false, norm = true, sigmoid = false;
  bool conv_bias = false;
  DType row = DType::f32, state = DType::f32;
  std::vector<std::int64_t> indices;  ///< [batch], or [batch, tokens] with `accepted`.
  std::vector<std::int64_t> write_indices, accepted;
  std::string_view padding = "negative";
};

/// A tensor in memory of exactly its size.
struct Memory {
  Memory(DType type, std::vector<std::int64_t> shape) : dtype(type), sizes(std::move(shape)) {
    std::int64_t count = 1;
    strides.resize(sizes.size());
    for (std::size_t d = sizes.size(); d-- > 0;) {
      strides[d] = count;
      count *= sizes[d];
    }
    bytes.resize(static_cast<std::size_t>(count) * size_of(dtype));
  }
  std::int64_t count() const { return static_cast<std::int64_t>(bytes.size() / size_of(dtype)); }
  double get(std::int64_t i) const { return read(bytes, i); }
  double was(std::int64_t i) const { return read(before, i); }
  void set(std::int64_t i, double value) {
    const auto put = [&](auto x) { std::memcpy(bytes.data() + i * sizeof x, &x, sizeof x); };
    if (dtype == DType::f32) put(static_cast<float>(value));
    if (dtype == DType::f16) put(tf::from_float<tf::f16>(static_cast<float>(value)));
    if (dtype == DType::bf16) put(tf::from_float<tf::bf16>(static_cast<float>(value)));
    if (dtype == DType::i64) put(static_cast<std::int64_t>(value));
    if (dtype == DType::i32) put(static_cast<std::int32_t>(value));
  }
  void fill(std::mt19937& random, double spread, double center = 0) {
    std::normal_distribution<double> normal(center, spread);
    for (std::int64_t i = 0; i < count(); ++i) set(i, normal(random));
  }
  TensorView view() const {
    return {dtype, {DeviceType::cuda, 0}, sizes, strides, const_cast<std::byte*>(bytes.data())};
  }

  DType dtype;
  std::vector<std::int64_t> sizes, strides;
  std::vector<std::byte> bytes, before;

 private:
  double read(const std::vector<std::byte>& from, std::int64_t i) const {
    const auto take = [&](auto x) {
      std::memcpy(&x, from.data() + i * sizeof x, sizeof x);
      return x;
    };
    if (dtype == DType::f32) return take(float{});
    if (dtype == DType::f16) return tf::to_float(take(tf::f16{}));
    return tf::to_float(take(tf::bf16{}));
  }
};

class Call {
 public:
  explicit Call(const Shape& shape)
      : s(shape),
        HV(s.H * s.G),
        C(2 * s.H * s.K + HV * s.V),
        qkvz(s.row, {s.batch, s.tokens, 2 * s.H * s.K + 2 * HV * s.V}),
        ba(s.row, {s.batch, s.tokens, 2 * HV}),
        conv(s.row, {s.slots, s.channels_last ? s.history : C, s.channels_last ? C : s.history}),
        state(s.state, {s.slots, HV, s.keys_last ? s.V : s.K, s.keys_last ? s.K : s.V}),
        weight(s.row, {C, s.taps}),
        bias(s.row, {C}),
        a_log(DType::f32, {HV}),
        dt_bias(DType::f32, {HV}),
        norm_weight(s.row, {s.V}),
        indices(DType::i64, columns(s.indices)),
        write_indices(DType::i64, columns(s.write_indices)),
        accepted(DType::i32, {static_cast<std::int64_t>(s.accepted.size())}),
        out(s.row, {s.batch, s.tokens, HV, s.V}) {
    std::mt19937 random(7);
    for (Memory* m : {&qkvz, &ba, &conv, &dt_bias, &bias}) m->fill(random, 1);
    state.fill(random, 0.3);
    weight.fill(random, 0.4);
    a_log.fill(random, 0.5);
    norm_weight.fill(random, 0.3, 1);
    out.fill(random, 9);
    set(indices, s.indices);
    set(write_indices, s.write_indices);
    set(accepted, s.accepted);
    for (Memory* m : all()) m->before = m->bytes;
  }

  std::vector<Argument> arguments() {
    if (s.channels_last) {  // [slots, channels, history] over memory [slots, history, channels].
      std::swap(conv.sizes[1], conv.sizes[2]);
      std::swap(conv.strides[1], conv.strides[2]);
      s.channels_last = false;
      conv_is_transposed = true;
    }
    const auto if_given = [](bool given, const Memory& memory) {
      return given ? Argument(memory.view()) : Argument{};
    };
    std::vector<Argument> list(gdn_decode::kGateActivation + 1);
    list[gdn_decode::kQkvz] = qkvz.view();
    list[gdn_decode::kBa] = ba.view();
    list[gdn_decode::kConvState] = conv.view();
    list[gdn_decode::kState] = state.view();
    list[gdn_decode::kConvWeight] = weight.view();
    list[gdn_decode::kConvBias] = if_given(s.conv_bias, bias);
    list[gdn_decode::kALog] = a_log.view();
    list[gdn_decode::kDtBias] = dt_bias.view();
    list[gdn_decode::kNormWeight] = if_given(s.norm, norm_weight);
    list[gdn_decode::kQkvzLayout] = s.flat ? kFlat : kInterleaved;
    list[gdn_decode::kStateLayout] = std::string_view(s.keys_last ? "[HV,V,K]" : "[HV,K,V]");
    list[gdn_decode::kNumKHeads] = s.H;
    list[gdn_decode::kNumVHeads] = HV;
    list[gdn_decode::kHeadKDim] = s.K;
    list[gdn_decode::kHeadVDim] = s.V;
    list[gdn_decode::kRounding] = std::string_view("fp32");
    list[gdn_decode::kBaLayout] =
        std::string_view(s.flat ? "b=H G | a=H G" : "H (b=G | a=G)");
    list[gdn_decode::kStateIndices] = if_given(!s.indices.empty(), indices);
    list[gdn_decode::kWriteIndices] = if_given(!s.write_indices.empty(), write_indices);
    list[gdn_decode::kNumAccepted] = if_given(!s.accepted.empty(), accepted);
    if (!s.indices.empty()) list[gdn_decode::kPadding] = s.padding;
    if (s.norm) list[gdn_decode::kNormEps] = 1e-6;
    if (s.norm) list[gdn_decode::kGateActivation] = std::string_view(s.sigmoid ? "sigmoid" : "silu");
    return list;
  }

  std::vector<Memory*> all() {
    return {&qkvz, &ba, &conv, &state, &weight, &bias, &a_log, &dt_bias,
            &norm_weight, &indices, &write_indices, &accepted, &out};
  }

  // Elements by the formulas of the two models.
  double row(char segment, std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t d) const {
    const std::int64_t P = 2 * s.K + 2 * s.G * s.V, h = n / s.G, j = n % s.G;
    std::int64_t column = 0;
    if (segment == 'q') column = s.flat ? n * s.K + d : n * P + d;
    if (segment == 'k') column = s.flat ? s.H * s.K + n * s.K + d : n * P + s.K + d;
    if (segment == 'v') {
      column = s.flat ? 2 * s.H * s.K + n * s.V + d : h * P + 2 * s.K + j * s.V + d;
    }
    if (segment == 'z') {
      column = s.flat ? 2 * s.H * s.K + HV * s.V + n * s.V + d
                      : h * P + 2 * s.K + s.G * s.V + j * s.V + d;
    }
    return qkvz.get((b * s.tokens + t) * qkvz.sizes[2] + column);
  }
  double gate(char segment, std::int64_t b, std::int64_t t, std::int64_t n) const {
    const std::int64_t h = n / s.G, j = n % s.G;
    const std::int64_t column = segment == 'b' ? (s.flat ? n : 2 * s.G * h + j)
                                               : (s.flat ? HV + n : 2 * s.G * h + s.G + j);
    return ba.get((b * s.tokens + t) * 2 * HV + column);
  }
  /// The raw input of a channel.
  double input(std::int64_t b, std::int64_t t, std::int64_t c) const {
    if (c < s.H * s.K) return row('q', b, t, c / s.K, c % s.K);
    c -= s.H * s.K;
    if (c < s.H * s.K) return row('k', b, t, c / s.K, c % s.K);
    c -= s.H * s.K;
    return row('v', b, t, c / s.V, c % s.V);
  }
  std::int64_t conv_at(std::int64_t slot, std::int64_t c, std::int64_t w) const {
    return conv_is_transposed ? (slot * s.history + w) * C + c : (slot * C + c) * s.history + w;
  }
  std::int64_t state_at(std::int64_t slot, std::int64_t n, std::int64_t k, std::int64_t v) const {
    const std::int64_t inner = s.keys_last ? v * s.K + k : k * s.V + v;
    return (slot * HV + n) * s.K * s.V + inner;
  }

  Shape s;
  std::int64_t HV, C;
  Memory qkvz, ba, conv, state, weight, bias, a_log, dt_bias, norm_weight, indices, write_indices,
      accepted, out;
  bool conv_is_transposed = false;

 private:
  std::vector<std::int64_t> columns(const std::vector<std::int64_t>& values) const {
    const auto count = static_cast<std::int64_t>(values.size());
    if (s.accepted.empty() || count == 0) return {count};
    return {s.batch, count / s.batch};
  }
  static void set(Memory& memory, const std::vector<std::int64_t>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      memory.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
    }
  }
};

/// One sequence after its tokens, from `read` and the window that begins at column `window`.
struct Expected {
  std::vector<double> out;                  ///< [tokens, HV, V]
  std::vector<std::vector<double>> states;  ///< After each token: [HV, K, V].

  Expected(const Call& c, std::int64_t b, std::int64_t read, std::int64_t conv_read,
           std::int64_t window) {
    const auto& s = c.s;
    std::vector<double> state(static_cast<std::size_t>(c.HV * s.K * s.V));
    const auto at = [&](std::int64_t n, std::int64_t k, std::int64_t v) -> double& {
      return state[static_cast<std::size_t>((n * s.K + k) * s.V + v)];
    };
    for (std::int64_t n = 0; n < c.HV; ++n)
      for (std::int64_t k = 0; k < s.K; ++k)
        for (std::int64_t v = 0; v < s.V; ++v) at(n, k, v) = c.state.was(c.state_at(read, n, k, v));
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      std::vector<double> u(static_cast<std::size_t>(c.C));
      for (std::int64_t ch = 0; ch < c.C; ++ch) {
        double y = s.conv_bias ? c.bias.get(ch) : 0;
        for (std::int64_t w = 0; w < s.taps; ++w) {
          const std::int64_t i = t + w - (s.taps - 1);
          const double x = i >= 0 ? c.input(b, i, ch)
                                  : c.conv.was(c.conv_at(conv_read, ch, window + t + w));
          y += c.weight.get(ch * s.taps + w) * x;
        }
        u[static_cast<std::size_t>(ch)] = y / (1 + std::exp(-y));
      }
      const auto unit = [&](std::int64_t first) {
        double sum = 1e-6;
        for (std::int64_t k = 0; k < s.K; ++k) sum += std::pow(u[static_cast<std::size_t>(first + k)], 2);
        std::vector<double> x;
        for (std::int64_t k = 0; k < s.K; ++k) {
          x.push_back(u[static_cast<std::size_t>(first + k)] / std::sqrt(sum));
        }
        return x;
      };
      for (std::int64_t n = 0; n < c.HV; ++n) {
        const std::vector<double> q = unit(n / s.G * s.K), key = unit((s.H + n / s.G) * s.K);
        const double beta = 1 / (1 + std::exp(-c.gate('b', b, t, n)));
        const double x = c.gate('a', b, t, n) + c.dt_bias.get(n);
        const double decay = std::exp(-std::exp(c.a_log.get(n)) * (x > 20 ? x : std::log1p(std::exp(x))));
        std::vector<double> core;
        double squares = 0;
        for (std::int64_t v = 0; v < s.V; ++v) {
          double seen = 0, o = 0;
          for (std::int64_t k = 0; k < s.K; ++k) {
            at(n, k, v) *= decay;
            seen += at(n, k, v) * key[static_cast<std::size_t>(k)];
          }
          const double value = u[static_cast<std::size_t>(2 * s.H * s.K + n * s.V + v)];
          for (std::int64_t k = 0; k < s.K; ++k) {
            at(n, k, v) += beta * (value - seen) * key[static_cast<std::size_t>(k)];
            o += at(n, k, v) * q[static_cast<std::size_t>(k)];
          }
          core.push_back(o / std::sqrt(static_cast<double>(s.K)));
          squares += core.back() * core.back();
        }
        for (std::int64_t v = 0; v < s.V; ++v) {
          const double z = c.row('z', b, t, n, v), sigmoid = 1 / (1 + std::exp(-z));
          const double normed = core[static_cast<std::size_t>(v)] /
                                std::sqrt(squares / static_cast<double>(s.V) + 1e-6) *
                                c.norm_weight.get(v) * (s.sigmoid ? sigmoid : z * sigmoid);
          out.push_back(s.norm ? normed : core[static_cast<std::size_t>(v)]);
        }
      }
      states.push_back(state);
    }
  }
};

}  // namespace truefuse::gdn_testing
