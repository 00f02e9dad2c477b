// A libtorch program with truefuse's operators: forward, backward, and what a refused call says.

#include <cstdio>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <truefuse/operators/bias_gelu/functions.h>
#include <truefuse/operators/gated/functions.h>
#include <truefuse/operators/swish/functions.h>

namespace {

bool is_close(const char* what, const at::Tensor& got, const at::Tensor& want) {
  const double error = (got - want).abs().max().item<double>();
  std::printf("%-24s largest difference from eager %.1e\n", what, error);
  return error < 1e-5;
}

}  // namespace

int main() {
  const at::Tensor x = at::randn({64, 256}).requires_grad_();
  const at::Tensor up = at::randn({64, 256});
  const at::Tensor bias = at::randn({256});

  bool right = is_close("swish", truefuse::swish(x), at::silu(x));
  right &= is_close("bias_gelu", truefuse::bias_gelu(x, bias, "tanh"), at::gelu(x + bias, "tanh"));
  const at::Tensor gated = truefuse::swiglu(x, up, "none");
  right &= is_close("swiglu", gated, at::silu(x) * up);
  gated.sum().backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad().reset();
  (at::silu(x) * up).sum().backward();
  right &= is_close("gradient of swiglu", gradient, x.grad());

  try {
    truefuse::swiglu_packed(at::randn({64, 255}), "gate|up", "none");
    right = false;
  } catch (const std::exception& error) {
    std::printf("refused: %s\n", error.what());
  }
  return right ? 0 : 1;
}
