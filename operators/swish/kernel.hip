// swish and its gradient, in one pass over memory; see elementwise.h, also for the constants.

#include "truefuse/operators/common/elementwise.h"
#include "truefuse/operators/common/swish.h"

namespace common = truefuse::common;
namespace elementwise = common::elementwise;
using elementwise::Grid;
using elementwise::Storage;

// out = swish(x)
struct Forward {
  Storage* out;
  const Storage* x;

  template <int N>
  struct Inputs {
    tf::Vector<Storage, N> x;

    TF_DEVICE void add_to(tf::Arrival& all) const { all.add(x); }
    TF_DEVICE void hold(const tf::Arrival& all) { all.hold(x); }
  };
  template <class Place>
  TF_DEVICE void load(const Place& at, Inputs<Place::kCount>& in) const {
    in.x = at.load_loose(1, x);
  }
  template <class Place>
  TF_DEVICE void store(const Place& at, const Inputs<Place::kCount>& in) const {
    auto value = tf::to_float(in.x);
    TF_UNROLL for (int i = 0; i < Place::kCount; ++i) {
      value[i] = common::swish<elementwise::Arithmetic, elementwise::kPrecision>(value[i]);
    }
    at.store(0, out, tf::from_float<Storage>(value));
  }
};

// grad_x = grad_out swish'(x)
struct Backward {
  Storage* grad_x;
  const Storage* grad_out;
  const Storage* x;

  template <int N>
  struct Inputs {
    tf::Vector<Storage, N> grad, x;

    TF_DEVICE void add_to(tf::Arrival& all) const {
      all.add(grad);
      all.add(x);
    }
    TF_DEVICE void hold(const tf::Arrival& all) { all.hold(x); }
  };
  template <class Place>
  TF_DEVICE void load(const Place& at, Inputs<Place::kCount>& in) const {
    in.grad = at.load_loose(1, grad_out);
    in.x = at.load(2, x);
  }
  template <class Place>
  TF_DEVICE void store(const Place& at, const Inputs<Place::kCount>& in) const {
    auto value = tf::to_float(in.grad);
    const auto x_values = tf::to_float(in.x);
    TF_UNROLL for (int i = 0; i < Place::kCount; ++i) {
      elementwise::Value unused;
      value[i] = common::swish_gradient<elementwise::Arithmetic, elementwise::kPrecision>(
          value[i], x_values[i], unused);
    }
    at.store(0, grad_x, tf::from_float<Storage>(value));
  }
};

TF_KERNEL(TF_THREADS)
void swish_forward(Storage* out, const Storage* x, Grid<2> grid) {
  elementwise::walk(grid, Forward{out, x});
}

TF_KERNEL(TF_THREADS)
void swish_backward(Storage* grad_x, const Storage* grad_out, const Storage* x, Grid<3> grid) {
  elementwise::walk(grid, Backward{grad_x, grad_out, x});
}
