#include <algorithm>
#include <string>

#include <truefuse/core/error.h>
#include <truefuse/operator/row_map.h>

namespace truefuse {

tf::RowMap row_map(std::string_view op_name, std::string_view argument, const Rows& rows) {
  if (rows.dims() > tf::kMaxRowDims) {
    const std::string name(argument);
    throw Error(std::string(op_name) + ": the leading dimensions of " + name +
                " have strides that need " + std::to_string(rows.dims()) +
                " separate loops; a GPU kernel walks over at most " +
                std::to_string(tf::kMaxRowDims) + ". Pass " + name + ".contiguous()");
  }
  tf::RowMap map;
  std::fill_n(map.sizes, tf::kMaxRowDims, 1);
  std::fill_n(map.strides, tf::kMaxRowDims, 0);
  map.dims = static_cast<tf::i64>(rows.dims());
  for (std::size_t d = 0; d < rows.dims(); ++d) {
    map.sizes[d] = rows.size(d);
    map.strides[d] = rows.stride(d);
  }
  return map;
}

}  // namespace truefuse
