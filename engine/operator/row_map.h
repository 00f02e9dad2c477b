#pragma once

#include <string_view>

#include <truefuse/core/rows.h>
#include <truefuse/device/rows.h>

namespace truefuse {

/// For a kernel, of an operator's argument. Throws Error that names both if more than kMaxRowDims
/// dimensions remain.
tf::RowMap row_map(std::string_view op_name, std::string_view argument, const Rows& rows);

}  // namespace truefuse
