#include <truefuse/contract/check.h>

namespace truefuse {

template Sizes<std::int64_t> check(const Contract& contract, std::string_view op_name,
                                   std::span<const BasicArgument<std::int64_t>> arguments);

}  // namespace truefuse
