// swish and its gradient, in one pass over memory; see elementwise.h, also for the constants.

#include "../common/elementwise.h"
#include "../common/swish.h"

using elementwise::Grid;
using elementwise::Offsets;

// out = swish(x)
struct Forward {
  const Grid<2>& grid;
  Storage* out;
  const Storage* x;

  template <int N>
  struct Inputs {
    tf::Vector<Storage, N> x;
  };
  template <int N>
  TF_DEVICE void load(const Offsets<2>& offsets, tf::i64 column, Inputs<N>& in) const {
    in.x = elementwise::load_loose<N>(grid, 1, x, offsets.of[1], column);
  }
  template <int N>
  TF_DEVICE void store(const Offsets<2>& offsets, tf::i64 column, const Inputs<N>& in) const {
    auto value = tf::to_float(in.x);
    TF_UNROLL for (int i = 0; i < N; ++i) {
      value[i] = truefuse::math::swish<elementwise::Arithmetic, elementwise::kPrecision>(value[i]);
    }
    elementwise::store<N>(grid, 0, out, offsets.of[0], column, tf::from_float<Storage>(value));
  }
};

// dx = grad swish'(x)
struct Backward {
  const Grid<3>& grid;
  Storage* dx;
  const Storage* grad;
  const Storage* x;

  template <int N>
  struct Inputs {
    tf::Vector<Storage, N> grad, x;
  };
  template <int N>
  TF_DEVICE void load(const Offsets<3>& offsets, tf::i64 column, Inputs<N>& in) const {
    in.grad = elementwise::load_loose<N>(grid, 1, grad, offsets.of[1], column);
    in.x = elementwise::load<N>(grid, 2, x, offsets.of[2], column);
  }
  template <int N>
  TF_DEVICE void store(const Offsets<3>& offsets, tf::i64 column, const Inputs<N>& in) const {
    auto value = tf::to_float(in.grad);
    const auto x_values = tf::to_float(in.x);
    TF_UNROLL for (int i = 0; i < N; ++i) {
      elementwise::Value unused;
      value[i] *= truefuse::math::swish_slope<elementwise::Arithmetic, elementwise::kPrecision>(
          x_values[i], unused);
    }
    elementwise::store<N>(grid, 0, dx, offsets.of[0], column, tf::from_float<Storage>(value));
  }
};

TF_KERNEL(128)
void swish_forward(Storage* out, const Storage* x, Grid<2> grid) {
  elementwise::walk(grid, Forward{grid, out, x});
}

TF_KERNEL(128)
void swish_backward(Storage* dx, const Storage* grad, const Storage* x, Grid<3> grid) {
  elementwise::walk(grid, Backward{grid, dx, grad, x});
}
