#include <deque>
#include <mutex>
#include <string>

#include <truefuse/core/error.h>
#include <truefuse/layout/named.h>
#include <truefuse/operators/gdn_decode/row_layouts.h>

namespace truefuse::gdn_decode {
namespace {

constexpr std::string_view kName = "gdn_decode: ";

layout::Sizes named_sizes(const HeadSizes& sizes) {
  return {
      {"H", sizes.H}, {"G", sizes.G}, {"HV", sizes.H * sizes.G}, {"K", sizes.K}, {"V", sizes.V}};
}

layout::Bound bound(RowTensor tensor, std::string_view text, const HeadSizes& sizes) {
  try {
    return layout::named_or_parsed(text).bind(named_sizes(sizes));
  } catch (const Error& error) {
    throw Error(std::string(kName) + std::string(name_of(tensor)) + "_layout: " + error.what());
  }
}

/// None for sizes that the layout cannot have.
std::optional<std::int64_t> columns_or_none(RowTensor tensor, std::string_view text,
                                            const HeadSizes& sizes) {
  try {
    return bound(tensor, text, sizes).size();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Collects the segments of all row tensors.
class Reader {
 public:
  Reader(const LayoutTexts& texts, const HeadSizes& sizes) : texts_(texts), sizes_(sizes) {
    for (std::uint8_t t = 0; t < kRowTensors; ++t) {
      if (texts[t]) read(static_cast<RowTensor>(t));
    }
  }

  RowLayouts layouts() const {
    RowLayouts result;
    result.columns = columns_;
    result.q = need("q");
    result.k = need("k");
    result.v = need("v");
    result.b = need("b");
    result.a = need("a");
    result.z = places_[index_of("z")];
    return result;
  }

 private:
  static constexpr std::string_view kSegments = "qkvzba";

  static std::size_t index_of(std::string_view segment) {
    return segment.size() == 1 ? kSegments.find(segment) : std::string_view::npos;
  }

  [[noreturn]] void fail(RowTensor tensor, const std::string& sentence) const {
    throw Error(std::string(kName) + std::string(name_of(tensor)) + "_layout \"" +
                std::string(*texts_[tensor]) + "\" " + sentence);
  }

  void read(RowTensor tensor) {
    const layout::Bound layout = bound(tensor, *texts_[tensor], sizes_);
    columns_[tensor] = layout.size();
    for (const layout::Segment& segment : layout.segments()) {
      if (segment.is_padding()) continue;
      const std::size_t i = index_of(segment.name);
      if (i == std::string_view::npos) {
        fail(tensor, "names a segment " + segment.name +
                         "; segments are q, k, v, z, b and a, and _ for padding.");
      }
      if (i < 3 && tensor != kRowQkvz) {
        fail(tensor, "names " + segment.name + "; q, k and v must be in qkvz.");
      }
      if (places_[i]) {
        fail(tensor, "names " + segment.name + ", which " +
                         std::string(name_of(places_[i]->tensor)) + "_layout has named already.");
      }
      places_[i] = place(tensor, segment);
    }
  }

  Place place(RowTensor tensor, const layout::Segment& segment) const {
    const bool of_key = segment.name == "q" || segment.name == "k";
    const bool is_scalar = segment.name == "b" || segment.name == "a";
    const std::string_view inner = of_key ? "K" : "V";
    Place place{tensor, segment.base};
    std::int64_t elements = 1;
    for (const layout::Axis& axis : segment.axes) {
      if (!axis.is_affine()) {
        fail(tensor, "splits the axis " + axis.name + " of " + segment.name +
                         "; a kernel needs one stride for it.");
      }
      const std::int64_t stride = axis.parts[0].stride;
      std::int64_t size = 0;
      elements *= axis.size;
      if (axis.name == "H") {
        place.head = stride;
        size = sizes_.H;
      } else if (axis.name == "G" && !of_key) {
        place.group = stride;
        size = sizes_.G;
      } else if (axis.name == "HV" && !of_key) {
        place.head = stride * sizes_.G;
        place.group = stride;
        size = sizes_.H * sizes_.G;
      } else if (axis.name == inner && !is_scalar) {
        place.inner = stride;
        size = of_key ? sizes_.K : sizes_.V;
      } else {
        fail(tensor, "gives " + segment.name + " an axis " + axis.name + "; its axes are " +
                         axes_of(of_key, is_scalar) + ".");
      }
      if (axis.size != size) {  // One that is written into the layout, as K:32 is.
        fail(tensor, "has " + segment.shape_text() + "; its " + axis.name + " must be " +
                         std::to_string(size) + ".");
      }
    }
    const std::int64_t wanted = sizes_.H * (of_key ? 1 : sizes_.G) *
                                (is_scalar ? 1
                                 : of_key  ? sizes_.K
                                           : sizes_.V);
    if (elements != wanted) {
      fail(tensor, "holds " + std::to_string(elements) + " elements of " + segment.name + " (" +
                       segment.shape_text() + "); there are " + std::to_string(wanted) +
                       ": its axes are " + axes_of(of_key, is_scalar) + ".");
    }
    return place;
  }

  static std::string axes_of(bool of_key, bool is_scalar) {
    return of_key ? "H and K" : is_scalar ? "H and G (or HV)" : "H, G (or HV) and V";
  }

  Place need(std::string_view segment) const {
    if (const auto& place = places_[index_of(segment)]) return *place;
    std::string given;
    for (std::uint8_t t = 0; t < kRowTensors; ++t) {
      if (!texts_[t]) continue;
      given += (given.empty() ? "" : ", ") + std::string(name_of(static_cast<RowTensor>(t))) +
               "_layout is \"" + std::string(*texts_[t]) + "\"";
    }
    throw Error(std::string(kName) + "no layout names " + std::string(segment) + ": " + given +
                ". Every one of q, k, v, b and a must be in the rows.");
  }

  const LayoutTexts& texts_;
  const HeadSizes& sizes_;
  std::array<std::optional<Place>, 6> places_;
  std::array<std::int64_t, kRowTensors> columns_{};
};

/// What was read once. Entries are never removed, so references to them stay good.
struct Entry {
  std::array<std::optional<std::string>, kRowTensors> texts;
  HeadSizes sizes;
  RowLayouts layouts;

  bool answers(const LayoutTexts& asked, const HeadSizes& asked_sizes) const {
    if (!(sizes == asked_sizes)) return false;
    for (std::size_t t = 0; t < kRowTensors; ++t) {
      if (texts[t].has_value() != asked[t].has_value()) return false;
      if (texts[t] && *texts[t] != *asked[t]) return false;
    }
    return true;
  }
};

const Entry& remembered(const LayoutTexts& texts, const HeadSizes& sizes) {
  static std::mutex mutex;
  static auto* entries = new std::deque<Entry>;  // Used until exit.
  const std::scoped_lock lock(mutex);
  for (const Entry& entry : *entries) {
    if (entry.answers(texts, sizes)) return entry;
  }
  Entry entry{{}, sizes, Reader(texts, sizes).layouts()};
  for (std::size_t t = 0; t < kRowTensors; ++t) {
    if (texts[t]) entry.texts[t] = std::string(*texts[t]);
  }
  return entries->emplace_back(std::move(entry));
}

}  // namespace

std::string_view name_of(RowTensor tensor) {
  constexpr std::array<std::string_view, kRowTensors> kNames{"qkvz", "ba", "z", "a"};
  return kNames[tensor];
}

const RowLayouts& row_layouts(const LayoutTexts& texts, const HeadSizes& sizes) {
  // The layers of a model ask for the same thing one after the other.
  thread_local const Entry* last = nullptr;
  if (last == nullptr || !last->answers(texts, sizes)) last = &remembered(texts, sizes);
  return last->layouts;
}

void refuse_columns(RowTensor tensor, std::string_view text, const HeadSizes& sizes,
                    std::int64_t found) {
  constexpr std::int64_t kMostGroups = 64;
  std::string sentence = std::string(kName) + std::string(name_of(tensor)) + " has " +
                         std::to_string(found) + " columns; the layout\n    " + std::string(text) +
                         "   with H=" + std::to_string(sizes.H) + " G=" + std::to_string(sizes.G) +
                         " K=" + std::to_string(sizes.K) + " V=" + std::to_string(sizes.V) +
                         "\n  has " + std::to_string(bound(tensor, text, sizes).size()) +
                         " columns.";
  HeadSizes other = sizes;
  for (other.G = 1; other.G <= kMostGroups; ++other.G) {
    if (columns_or_none(tensor, text, other) != found) continue;
    sentence += " With G=" + std::to_string(other.G) + " it would have " + std::to_string(found) +
                ": is num_v_heads " + std::to_string(other.H * other.G) + "?";
    break;
  }
  throw Error(sentence);
}

}  // namespace truefuse::gdn_decode
