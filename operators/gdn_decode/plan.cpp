#include <truefuse/operators/gdn_decode/operator.h>
#include <truefuse/operators/gdn_decode/problem.h>
namespace truefuse::gdn_decode {
std::vector<std::string> constant_names() { return {}; }
void plan(const Call& call, const DeviceFacts&, Plan&) { Problem p(call); }
std::vector<Operator::NamedVariant> variants() { return {}; }
}
