#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/layout.h>
#include <truefuse/core/error.h>
#include <truefuse/layout/compare.h>
#include <truefuse/layout/convert.h>
#include <truefuse/layout/emit.h>
#include <truefuse/layout/named.h>
#include <truefuse/layout/share.h>

namespace truefuse::capi {
namespace {

using layout::Bound;
using layout::Run;
using layout::Segment;

Bound bound(const char* text, const char* sizes) {
  return layout::named_or_parsed(text).bind(layout::parse_sizes(sizes));
}

layout::Share share_of(const char* text, const char* sizes, const char* axis, std::int64_t rank,
                       std::int64_t world) {
  return layout::share(layout::named_or_parsed(text), layout::parse_sizes(sizes), axis, rank,
                       world);
}

void check_room(std::int64_t count, std::int64_t size) {
  if (count == size) return;
  throw Error("layout: the index map has " + std::to_string(size) + " places; room is for " +
              std::to_string(count));
}

void write_texts(JsonWriter& json, const std::vector<std::string>& texts) {
  json.begin_array();
  for (const std::string& text : texts) json.string(text);
  json.end_array();
}

void write_segment(JsonWriter& json, const Segment& segment) {
  json.begin_object();
  json.key("name").string(segment.name);
  json.key("padding").boolean(segment.is_padding());
  json.key("base").integer(segment.base);
  json.key("elements").integer(segment.elements);
  json.key("affine").boolean(segment.is_affine());
  json.key("axes").begin_array();
  for (const layout::Axis& axis : segment.axes) {
    json.begin_object();
    json.key("name").string(axis.name);
    json.key("size").integer(axis.size);
    json.key("parts").begin_array();
    for (const layout::Part& part : axis.parts) {
      json.begin_object();
      json.key("divisor").integer(part.divisor);
      json.key("extent").integer(part.extent);
      json.key("stride").integer(part.stride);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

void write_name(JsonWriter& json, const Bound& bound, const std::optional<layout::Element>& first) {
  if (first) {
    json.string(bound.segments()[first->segment].name);
  } else {
    json.null();
  }
}

void write_number(JsonWriter& json, const std::optional<std::int64_t>& number) {
  if (number) {
    json.integer(*number);
  } else {
    json.null();
  }
}

void write_runs(JsonWriter& json, const Bound& a, const Bound& b, std::int64_t most) {
  layout::Runs runs(a, b);
  Run run;
  json.key("runs").begin_array();
  bool more = runs.next(run);
  for (std::int64_t count = 0; more && count < most; ++count, more = runs.next(run)) {
    json.begin_object();
    json.key("offset").integer(run.offset);
    json.key("length").integer(run.length);
    json.key("same").boolean(run.same);
    json.key("a").string(runs.a_text(run));
    json.key("b").string(runs.b_text(run));
    json.key("a_segment");
    write_name(json, a, run.a);
    json.key("b_segment");
    write_name(json, b, run.b);
    json.end_object();
  }
  json.end_array();
  json.key("more").boolean(more);
}

void write_comparison(JsonWriter& json, const Bound& a, const Bound& b, std::int64_t most) {
  const layout::Comparison comparison = layout::compare(a, b);
  json.begin_object();
  json.key("a_size").integer(a.size());
  json.key("b_size").integer(b.size());
  json.key("elements").integer(comparison.elements);
  json.key("same");
  write_number(json, comparison.same);
  json.key("first");
  write_number(json, comparison.first);
  json.key("sentence").string(comparison.sentence);
  json.key("only_a");
  write_texts(json, comparison.only_a);
  json.key("only_b");
  write_texts(json, comparison.only_b);
  write_runs(json, a, b, most);
  json.end_object();
}

}  // namespace
}  // namespace truefuse::capi

using namespace truefuse;  // NOLINT: this file is the boundary of the namespace.

extern "C" {

char* truefuse_layouts(void) {
  return capi::answer([](JsonWriter& json) {
    json.begin_array();
    for (const layout::Named& named : layout::named()) {
      json.begin_object();
      json.key("name").string(named.name);
      json.key("text").string(named.text);
      json.key("provenance").string(named.provenance);
      json.end_object();
    }
    json.end_array();
  });
}

char* truefuse_layout_parse(const char* text) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Layout parsed = layout::named_or_parsed(text);
    json.begin_object().key("text").string(parsed.text()).key("names");
    capi::write_texts(json, parsed.names());
    json.end_object();
  });
}

char* truefuse_layout_bind(const char* text, const char* sizes) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Layout parsed = layout::named_or_parsed(text);
    const layout::Bound bound = parsed.bind(layout::parse_sizes(sizes));
    json.begin_object();
    json.key("text").string(parsed.text());
    json.key("sizes").begin_object();
    for (const auto& [name, size] : bound.sizes()) json.key(name).integer(size);
    json.end_object();
    json.key("size").integer(bound.size());
    json.key("segments").begin_array();
    for (const layout::Segment& segment : bound.segments()) capi::write_segment(json, segment);
    json.end_array().end_object();
  });
}

char* truefuse_layout_offset(const char* text, const char* sizes, const char* segment,
                             const int64_t* index, int64_t indices) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Bound bound = capi::bound(text, sizes);
    json.begin_object();
    json.key("offset").integer(bound.offset(segment, {index, index + indices}));
    json.end_object();
  });
}

char* truefuse_layout_element(const char* text, const char* sizes, int64_t offset) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Bound bound = capi::bound(text, sizes);
    const layout::Element element = bound.element_at(offset);
    json.begin_object();
    json.key("segment").string(bound.segments()[element.segment].name);
    json.key("index").begin_array();
    for (const std::int64_t index : element.index) json.integer(index);
    json.end_array();
    json.key("text").string(bound.text(element)).end_object();
  });
}

char* truefuse_layout_compare(const char* a, const char* a_sizes, const char* b,
                              const char* b_sizes, int64_t most_runs) {
  return capi::answer([&](JsonWriter& json) {
    capi::write_comparison(json, capi::bound(a, a_sizes), capi::bound(b, b_sizes), most_runs);
  });
}

char* truefuse_layout_convert(const char* from, const char* from_sizes, const char* to,
                              const char* to_sizes) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Conversion conversion =
        layout::convert(capi::bound(from, from_sizes), capi::bound(to, to_sizes));
    json.begin_object();
    json.key("kind").string(layout::text(conversion.kind));
    json.key("expression").string(conversion.expression);
    json.key("expression_moves").integer(conversion.expression_moves);
    json.key("gather_moves").integer(conversion.gather_moves);
    json.key("dropped");
    capi::write_texts(json, conversion.dropped);
    json.end_object();
  });
}

char* truefuse_layout_index_map(const char* from, const char* from_sizes, const char* to,
                                const char* to_sizes, int64_t* map, int64_t count) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Bound wanted = capi::bound(to, to_sizes);
    capi::check_room(count, wanted.size());
    layout::index_map(capi::bound(from, from_sizes), wanted, map);
    json.begin_object().end_object();
  });
}

char* truefuse_layout_share(const char* text, const char* sizes, const char* axis, int64_t rank,
                            int64_t world, int64_t most_stretches) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Share share = capi::share_of(text, sizes, axis, rank, world);
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(most_stretches, 0));
    auto stretches = layout::stretches(share, most + 1);
    const bool more = stretches.size() > most;
    if (more) stretches.pop_back();
    json.begin_object();
    json.key("size").integer(share.local.size());
    json.key("first").integer(share.first);
    json.key("replicated");
    capi::write_texts(json, share.replicated);
    json.key("stretches").begin_array();
    for (const layout::Stretch& stretch : stretches) {
      json.begin_object();
      json.key("global").integer(stretch.global);
      json.key("local").integer(stretch.local);
      json.key("length").integer(stretch.length);
      json.end_object();
    }
    json.end_array();
    json.key("more").boolean(more).end_object();
  });
}

char* truefuse_layout_share_map(const char* text, const char* sizes, const char* axis, int64_t rank,
                                int64_t world, int64_t* map, int64_t count) {
  return capi::answer([&](JsonWriter& json) {
    const layout::Share share = capi::share_of(text, sizes, axis, rank, world);
    capi::check_room(count, share.local.size());
    layout::index_map(share, map);
    json.begin_object().end_object();
  });
}

char* truefuse_layout_emit(const char* text, const char* sizes, const char* language) {
  return capi::answer([&](JsonWriter& json) {
    json.begin_object();
    json.key("code").string(layout::emit(capi::bound(text, sizes), language));
    json.end_object();
  });
}

}  // extern "C"
