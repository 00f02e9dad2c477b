#pragma once

#include <optional>
#include <string_view>

namespace truefuse::jit {

/// The code object for `target` ("gfx90a:sramecc+") in what clang wrote: a bundle of objects for
/// several targets, or already that one object. A view into `bytes`; nothing if the bundle is
/// damaged or does not hold the target.
std::optional<std::string_view> unbundle(std::string_view bytes, std::string_view target);

/// Whether these bytes are a compressed bundle, which unbundle() does not read.
bool is_compressed_bundle(std::string_view bytes);

}  // namespace truefuse::jit
