// swish and its gradient, in one pass over memory; see elementwise.h, also for the constants.

#include "truefuse/operators/common/elementwise.h"
#include "truefuse/operators/common/swish.h"

namespace common = truefuse::common;
namespace elementwise = common::elementwise;
using elementwise::Grid;
using elementwise::Offsets;
using elementwise::Storage;

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
      value[i] = common::swish<elementwise::Arithmetic, elementwise::kPrecision>(value[i]);
    }
    elementwise::store<N>(grid, 0, out, offsets.of[0], column, tf::from_float<Storage>(value));
  }
};

// grad_x = grad_out swish'(x)
struct Backward {
  const Grid<3>& grid;
  Storage* grad_x;
  const Storage* grad_out;
  const Storage* x;

  template <int N>
  struct Inputs {
    tf::Vector<Storage, N> grad, x;
  };
  template <int N>
  TF_DEVICE void load(const Offsets<3>& offsets, tf::i64 column, Inputs<N>& in) const {
    in.grad = elementwise::load_loose<N>(grid, 1, grad_out, offsets.of[1], column);
    in.x = elementwise::load<N>(grid, 2, x, offsets.of[2], column);
  }
  template <int N>
  TF_DEVICE void store(const Offsets<3>& offsets, tf::i64 column, const Inputs<N>& in) const {
    auto value = tf::to_float(in.grad);
    const auto x_values = tf::to_float(in.x);
    TF_UNROLL for (int i = 0; i < N; ++i) {
      elementwise::Value unused;
      value[i] = common::swish_gradient<elementwise::Arithmetic, elementwise::kPrecision>(
          value[i], x_values[i], unused);
    }
    elementwise::store<N>(grid, 0, grad_x, offsets.of[0], column, tf::from_float<Storage>(value));
  }
};

TF_KERNEL(TF_THREADS)
void swish_forward(Storage* out, const Storage* x, Grid<2> grid) {
  elementwise::walk(grid, Forward{grid, out, x});
}

TF_KERNEL(TF_THREADS)
void swish_backward(Storage* grad_x, const Storage* grad_out, const Storage* x, Grid<3> grid) {
  elementwise::walk(grid, Backward{grid, grad_x, grad_out, x});
}
