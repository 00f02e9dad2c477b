// activation(gate) up and its gradients, in one pass over memory; see elementwise.h.
//
// Constants, beside those of elementwise.h: TF_ACTIVATION (of gated::Activation); TF_PAIRS: gate
// and up take turns in memory, and vectors of both are read and written whole.

#include "truefuse/operators/common/elementwise.h"

#include "activation.h"

namespace elementwise = truefuse::common::elementwise;
using elementwise::Grid;
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
template <class Place, int N = Place::kCount>
TF_DEVICE void load_both(const Place& at, const Options& options, int k, const Storage* gate,
                         const Storage* up, Elements<N>& gate_out, Elements<N>& up_out) {
  if constexpr (TF_PAIRS && N > 1) {
    const Storage* const from = (options.gate_first ? gate : up) + at.offset_of_pairs(k);
    const Elements<N> one = tf::load<N>(from), two = tf::load<N>(from + N);
    TF_UNROLL for (int i = 0; i < N; ++i) {
      const Storage first = 2 * i < N ? one[2 * i % N] : two[2 * i % N];
      const Storage second = 2 * i < N ? one[2 * i % N + 1] : two[2 * i % N + 1];
      gate_out[i] = options.gate_first ? first : second;
      up_out[i] = options.gate_first ? second : first;
    }
  } else if constexpr (TF_PAIRS) {
    const tf::i64 offset = at.offset_of_pairs(k);
    gate_out[0] = gate[offset];
    up_out[0] = up[offset];
  } else {
    gate_out = at.load(k, gate);
    up_out = at.load(k + 1, up);
  }
}

/// The other way round; a null pointer is an output that nobody wants.
template <class Place, int N = Place::kCount>
TF_DEVICE void store_both(const Place& at, const Options& options, int k, Storage* gate,
                          Storage* up, const Elements<N>& gate_in, const Elements<N>& up_in) {
  if constexpr (TF_PAIRS && N > 1) {
    Storage* const to = (options.gate_first ? gate : up) + at.offset_of_pairs(k);
    Elements<N> one, two;
    TF_UNROLL for (int i = 0; i < N; ++i) {
      const Storage first = options.gate_first ? gate_in[i] : up_in[i];
      const Storage second = options.gate_first ? up_in[i] : gate_in[i];
      (2 * i < N ? one : two)[2 * i % N] = first;
      (2 * i < N ? one : two)[2 * i % N + 1] = second;
    }
    tf::store(to, one);
    tf::store(to + N, two);
  } else if constexpr (TF_PAIRS) {
    const tf::i64 offset = at.offset_of_pairs(k);
    gate[offset] = gate_in[0];
    up[offset] = up_in[0];
  } else {
    if (gate) at.store(k, gate, gate_in);
    if (up) at.store(k + 1, up, up_in);
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
  const Options& options;
  Storage* out;
  const Storage* gate;
  const Storage* up;

  template <int N>
  struct Inputs {
    Elements<N> gate, up;

    TF_DEVICE void add_to(tf::Arrival& all) const {
      all.add(gate);
      all.add(up);
    }
    TF_DEVICE void hold(const tf::Arrival& all) { all.hold(gate); }
  };
  template <class Place>
  TF_DEVICE void load(const Place& at, Inputs<Place::kCount>& in) const {
    load_both(at, options, 1, gate, up, in.gate, in.up);
  }
  template <class Place, int N = Place::kCount>
  TF_DEVICE void store(const Place& at, const Inputs<N>& in) const {
    Values<N> values = tf::to_float(in.gate);
    const Values<N> up_values = tf::to_float(in.up);
    TF_UNROLL for (int i = 0; i < N; ++i) values[i] = Gate::value(values[i]);
    round_gate<N>(options, values);
    TF_UNROLL for (int i = 0; i < N; ++i) values[i] *= up_values[i];
    at.store(0, out, tf::from_float<Storage>(values));
  }
};

// grad_gate = grad_out up activation'(gate), grad_up = grad_out activation(gate)
struct Backward {
  const Options& options;
  Storage* grad_gate;
  Storage* grad_up;
  const Storage* grad_out;
  const Storage* gate;
  const Storage* up;

  template <int N>
  struct Inputs {
    Elements<N> grad_out, gate, up;

    TF_DEVICE void add_to(tf::Arrival& all) const {
      all.add(grad_out);
      all.add(gate);
      all.add(up);
    }
    TF_DEVICE void hold(const tf::Arrival& all) { all.hold(gate); }
  };
  template <class Place>
  TF_DEVICE void load(const Place& at, Inputs<Place::kCount>& in) const {
    in.grad_out = at.load_loose(2, grad_out);
    load_both(at, options, 3, gate, up, in.gate, in.up);
  }
  template <class Place, int N = Place::kCount>
  TF_DEVICE void store(const Place& at, const Inputs<N>& in) const {
    const Values<N> g = tf::to_float(in.grad_out);
    const Values<N> gate_values = tf::to_float(in.gate);
    Values<N> gate_result = tf::to_float(in.up);
    Values<N> activated;
    TF_UNROLL for (int i = 0; i < N; ++i) {
      gate_result[i] = Gate::gradient(g[i] * gate_result[i], gate_values[i], activated[i]);
    }
    round_gate<N>(options, activated);
    TF_UNROLL for (int i = 0; i < N; ++i) activated[i] *= g[i];
    store_both(at, options, 0, grad_gate, grad_up, tf::from_float<Storage>(gate_result),
               tf::from_float<Storage>(activated));
  }
};

TF_KERNEL(TF_THREADS)
void gated_forward(Storage* out, const Storage* gate, const Storage* up, Options options,
                   Grid<3> grid) {
  elementwise::walk(grid, Forward{options, out, gate, up});
}

TF_KERNEL(TF_THREADS)
void gated_backward(Storage* grad_gate, Storage* grad_up, const Storage* grad_out,
                    const Storage* gate, const Storage* up, Options options, Grid<5> grid) {
  elementwise::walk(grid, Backward{options, grad_gate, grad_up, grad_out, gate, up});
}
