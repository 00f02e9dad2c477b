// activation(gate) up and its gradients, in one pass over memory; see elementwise.h.
//
// Constants, beside those of elementwise.h: TF_ACTIVATION (of gated::Activation); TF_PAIRS: gate
// and up take turns in memory, and vectors of both are read and written whole.

#include "truefuse/operators/common/elementwise.h"

#include "activation.h"

namespace elementwise = truefuse::common::elementwise;
using elementwise::Grid;
using elementwise::Offsets;
using elementwise::Storage;
using Gate = truefuse::gated::Gate<elementwise::Arithmetic,
                                   static_cast<truefuse::gated::Activation>(TF_ACTIVATION),
                                   elementwise::kPrecision>;

template <int N>
using Elements = tf::Vector<Storage, N>;
template <int N>
using Values = tf::Vector<elementwise::Value, N>;

struct Options {
  tf::u32 round_gate;  // Whether the activated gate is rounded before it is multiplied.
  tf::u32 gate_first;  // Of a pair.
};

/// Gate and up, operands k and k + 1 of the grid.
template <int N, int kOperands>
TF_DEVICE void load_both(const Grid<kOperands>& grid, const Options& options, int k,
                         const Storage* gate, const Storage* up, const Offsets<kOperands>& offsets,
                         tf::i64 column, Elements<N>& gate_out, Elements<N>& up_out) {
  if constexpr (TF_PAIRS && N > 1) {
    const Storage* const from = (options.gate_first ? gate : up) + offsets.of[k] + 2 * column;
    const Elements<N> one = tf::load<N>(from), two = tf::load<N>(from + N);
    TF_UNROLL for (int i = 0; i < N; ++i) {
      const Storage first = 2 * i < N ? one[2 * i % N] : two[2 * i % N];
      const Storage second = 2 * i < N ? one[2 * i % N + 1] : two[2 * i % N + 1];
      gate_out[i] = options.gate_first ? first : second;
      up_out[i] = options.gate_first ? second : first;
    }
  } else {
    gate_out = elementwise::load<N>(grid, k, gate, offsets.of[k], column);
    up_out = elementwise::load<N>(grid, k + 1, up, offsets.of[k + 1], column);
  }
}

/// The other way round; a null pointer is an output that nobody wants.
template <int N, int kOperands>
TF_DEVICE void store_both(const Grid<kOperands>& grid, const Options& options, int k, Storage* gate,
                          Storage* up, const Offsets<kOperands>& offsets, tf::i64 column,
                          const Elements<N>& gate_in, const Elements<N>& up_in) {
  if constexpr (TF_PAIRS && N > 1) {
    Storage* const to = (options.gate_first ? gate : up) + offsets.of[k] + 2 * column;
    Elements<N> one, two;
    TF_UNROLL for (int i = 0; i < N; ++i) {
      const Storage first = options.gate_first ? gate_in[i] : up_in[i];
      const Storage second = options.gate_first ? up_in[i] : gate_in[i];
      (2 * i < N ? one : two)[2 * i % N] = first;
      (2 * i < N ? one : two)[2 * i % N + 1] = second;
    }
    tf::store(to, one);
    tf::store(to + N, two);
  } else {
    if (gate) elementwise::store<N>(grid, k, gate, offsets.of[k], column, gate_in);
    if (up) elementwise::store<N>(grid, k + 1, up, offsets.of[k + 1], column, up_in);
  }
}

template <int N>
TF_DEVICE void round_gate(const Options& options, Values<N>& activated) {
  if constexpr (sizeof(Storage) == 2) {
    if (options.round_gate) activated = tf::to_float(tf::from_float<Storage>(activated));
  }
}

// out = activation(gate) up
struct Forward {
  const Grid<3>& grid;
  const Options& options;
  Storage* out;
  const Storage* gate;
  const Storage* up;

  template <int N>
  struct Inputs {
    Elements<N> gate, up;
  };
  template <int N>
  TF_DEVICE void load(const Offsets<3>& offsets, tf::i64 column, Inputs<N>& in) const {
    load_both<N>(grid, options, 1, gate, up, offsets, column, in.gate, in.up);
  }
  template <int N>
  TF_DEVICE void store(const Offsets<3>& offsets, tf::i64 column, const Inputs<N>& in) const {
    Values<N> values = tf::to_float(in.gate);
    const Values<N> up_values = tf::to_float(in.up);
    TF_UNROLL for (int i = 0; i < N; ++i) values[i] = Gate::value(values[i]);
    round_gate<N>(options, values);
    TF_UNROLL for (int i = 0; i < N; ++i) values[i] *= up_values[i];
    elementwise::store<N>(grid, 0, out, offsets.of[0], column, tf::from_float<Storage>(values));
  }
};

// grad_gate = grad_out up activation'(gate), grad_up = grad_out activation(gate)
struct Backward {
  const Grid<5>& grid;
  const Options& options;
  Storage* grad_gate;
  Storage* grad_up;
  const Storage* grad_out;
  const Storage* gate;
  const Storage* up;

  template <int N>
  struct Inputs {
    Elements<N> grad_out, gate, up;
  };
  template <int N>
  TF_DEVICE void load(const Offsets<5>& offsets, tf::i64 column, Inputs<N>& in) const {
    in.grad_out = elementwise::load_loose<N>(grid, 2, grad_out, offsets.of[2], column);
    load_both<N>(grid, options, 3, gate, up, offsets, column, in.gate, in.up);
  }
  template <int N>
  TF_DEVICE void store(const Offsets<5>& offsets, tf::i64 column, const Inputs<N>& in) const {
    const Values<N> g = tf::to_float(in.grad_out);
    const Values<N> gate_values = tf::to_float(in.gate);
    Values<N> gate_result = tf::to_float(in.up);
    Values<N> activated;
    TF_UNROLL for (int i = 0; i < N; ++i) {
      gate_result[i] = Gate::gradient(g[i] * gate_result[i], gate_values[i], activated[i]);
    }
    round_gate<N>(options, activated);
    TF_UNROLL for (int i = 0; i < N; ++i) activated[i] *= g[i];
    store_both<N>(grid, options, 0, grad_gate, grad_up, offsets, column,
                  tf::from_float<Storage>(gate_result), tf::from_float<Storage>(activated));
  }
};

TF_KERNEL(TF_THREADS)
void gated_forward(Storage* out, const Storage* gate, const Storage* up, Options options,
                   Grid<3> grid) {
  elementwise::walk(grid, Forward{grid, options, out, gate, up});
}

TF_KERNEL(TF_THREADS)
void gated_backward(Storage* grad_gate, Storage* grad_up, const Storage* grad_out,
                    const Storage* gate, const Storage* up, Options options, Grid<5> grid) {
  elementwise::walk(grid, Backward{grid, options, grad_gate, grad_up, grad_out, gate, up});
}
