#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace truefuse {

/// Writes one JSON value, piece by piece; the engine only ever writes JSON. Commas are placed by
/// the writer; begin/end must be balanced by the caller.
///
///   JsonWriter json;
///   json.begin_object().key("name").string("NVRTC").key("ok").boolean(true).end_object();
class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  /// Bytes that are not valid UTF-8 (a compiler's log may hold them) are written as U+FFFD.
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(std::int64_t value);
  /// NaN and infinities, which JSON cannot hold, become null.
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  /// A value that is JSON already.
  JsonWriter& raw(std::string_view json);

  const std::string& text() const { return text_; }

 private:
  void separate();

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace truefuse
