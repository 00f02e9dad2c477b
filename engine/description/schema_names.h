#pragma once

#include <string>
#include <vector>

#include <truefuse/description/entries.h>

namespace truefuse::description {

struct SchemaName {
  std::string name;
  std::size_t place;  ///< In the file's text.
};

/// The names of a schema's arguments, in order: x and eps of `f(Tensor(a!) x, *, float eps=1e-5) ->
/// Tensor`. What PyTorch will not read as a schema gives fewer names, or none.
std::vector<SchemaName> schema_arguments(const File& file, const Entry& entry);

}  // namespace truefuse::description
