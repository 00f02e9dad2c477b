// Geometry::bind: which parameter of a kernel is given what.

#include <algorithm>
#include <variant>

#include <truefuse/description/geometry.h>

namespace truefuse::description {
namespace {

using From = Binding::From;
using Type = Binding::Type;

constexpr std::array<std::pair<std::string_view, Type>, 17> kScalarTypes{{
    {"tf::i64", Type::i64},
    {"tf::i32", Type::i32},
    {"tf::u64", Type::u64},
    {"tf::u32", Type::u32},
    {"float", Type::f32},
    {"double", Type::f64},
    {"int", Type::i32},
    {"unsigned", Type::u32},
    {"unsigned int", Type::u32},
    {"long long", Type::i64},
    {"int64_t", Type::i64},
    {"int32_t", Type::i32},
    {"uint32_t", Type::u32},
    {"uint64_t", Type::u64},
    {"std::int64_t", Type::i64},
    {"std::int32_t", Type::i32},
    {"unsigned long long", Type::u64},
}};

/// Element types that a source may spell out; others are aliases, which constants choose.
constexpr std::array<std::pair<std::string_view, DType>, 14> kElementTypes{{
    {"double", DType::f64},
    {"float", DType::f32},
    {"tf::f16", DType::f16},
    {"tf::bf16", DType::bf16},
    {"tf::i64", DType::i64},
    {"long long", DType::i64},
    {"int64_t", DType::i64},
    {"tf::i32", DType::i32},
    {"int", DType::i32},
    {"int32_t", DType::i32},
    {"tf::i8", DType::i8},
    {"tf::u8", DType::u8},
    {"bool", DType::boolean},
    {"tf::i16", DType::i16},
}};

template <class Pairs>
auto find_in(const Pairs& pairs, std::string_view name)
    -> std::optional<decltype(pairs[0].second)> {
  for (const auto& [known, value] : pairs) {
    if (known == name) return value;
  }
  return std::nullopt;
}

bool is_real(const ArgumentSpec& argument) {
  const auto* scalar = std::get_if<ScalarSpec>(&argument.spec);
  return scalar != nullptr && std::holds_alternative<FloatSpec>(*scalar);
}

}  // namespace

void Geometry::bind(const File& file, const std::string& source_name, const std::string& source) {
  std::vector<bool> is_passed(contract_.arguments().size() + contract_.outputs().size());
  for (LaunchText& launch : launches_) {
    const auto signature = find_signature(source_name, source, launch.kernel);
    if (!signature) {
      std::string names;
      for (const std::string& name : kernel_names(source))
        names += (names.empty() ? "" : ", ") + name;
      file.fail(launch.place, source_name + " defines no kernel " + launch.kernel +
                                  "; it defines " + (names.empty() ? "none" : names));
    }
    if (!signature->max_threads.empty() &&
        std::all_of(signature->max_threads.begin(), signature->max_threads.end(),
                    [](char c) { return c >= '0' && c <= '9'; })) {
      launch.max_threads = static_cast<std::uint32_t>(std::stoul(signature->max_threads));
    }
    const File code{source_name, source};
    for (const KernelParameter& parameter : signature->parameters) {
      try {
        launch.parameters.push_back(binding_of(parameter));
      } catch (const Error& error) {
        code.fail(parameter.place, error.what());
      }
      const Binding& binding = launch.parameters.back();
      if (binding.from == From::tensor) is_passed[binding.index] = true;
    }
    if (launch.parameters.size() > KernelParameters::kMaxParameters) {
      code.fail(signature->place, "a kernel takes at most 48 parameters");
    }
  }
  for (std::size_t i = 0; i < contract_.outputs().size(); ++i) {
    if (is_passed[contract_.arguments().size() + i]) continue;
    file.fail(launches_.front().place, "no kernel has a parameter for the output " +
                                           contract_.outputs()[i].name + ", so nobody writes it");
  }
}

Binding Geometry::binding_of(const KernelParameter& parameter) {
  const std::string& name = parameter.name;
  if (parameter.type == "tf::RowMap" && !parameter.is_pointer) return rows_binding(parameter);
  if (const auto tensor = facts_.tensor_named(name)) return tensor_binding(parameter, *tensor);
  for (std::size_t i = 0; i < scratch_.size(); ++i) {
    if (scratch_[i].name != name) continue;
    if (!parameter.is_pointer)
      throw Error(name + " is scratch memory; the parameter must be a pointer");
    return {From::scratch, Type::pointer, i, name};
  }
  const auto& arguments = contract_.arguments();
  const auto real = std::find_if(arguments.begin(), arguments.end(), [&](const ArgumentSpec& a) {
    return a.name == name && is_real(a);
  });
  if (parameter.is_pointer) {
    slot_of({name, {}, {}});  // Throws for a name that nothing has.
    throw Error(name + " is a number; the parameter must not be a pointer");
  }
  const std::optional<Type> type = find_in(kScalarTypes, parameter.type);
  if (!type) {
    throw Error("a parameter cannot be of the type " + parameter.type +
                "; there are tf::i64, tf::i32, tf::u64, tf::u32, float, double and tf::RowMap");
  }
  const bool is_floating = *type == Type::f32 || *type == Type::f64;
  if (real != arguments.end()) {
    if (!is_floating)
      throw Error(name + " is a float argument; the parameter must be float or double");
    return {From::real, *type, static_cast<std::size_t>(real - arguments.begin()), name};
  }
  const std::size_t slot = slot_of({name, {}, {}});
  if (is_floating) {
    throw Error(name +
                " is a whole number; the parameter must be tf::i64, tf::i32, tf::u64 or tf::u32");
  }
  return {From::number, *type, slot, name};
}

/// Of `tf::RowMap x_rows`.
Binding Geometry::rows_binding(const KernelParameter& parameter) const {
  constexpr std::string_view kEnd = "_rows";
  const std::string& name = parameter.name;
  const std::string of = name.ends_with(kEnd) ? name.substr(0, name.size() - kEnd.size()) : "";
  const auto tensor = facts_.tensor_named(of);
  if (!tensor) {
    throw Error(
        "a map of rows is named after its tensor, as in tf::RowMap x_rows; no tensor fits " + name);
  }
  const TensorSpec& spec = facts_.spec(*tensor);
  if (spec.dims.empty() || spec.layout == Layout::strided || spec.layout == Layout::dense) {
    throw Error("a map says where rows begin, whose elements lie one after the other; " + of +
                " is not such a tensor in the contract: give it a last dimension and make it "
                "rows-strided");
  }
  return {From::rows, Type::map, *tensor, of};
}

Binding Geometry::tensor_binding(const KernelParameter& parameter, std::size_t tensor) const {
  const std::string& name = parameter.name;
  const TensorSpec* spec = &facts_.spec(tensor);
  const bool is_output = tensor >= contract_.arguments().size();
  if (!parameter.is_pointer) throw Error(name + " is a tensor; the parameter must be a pointer");
  if (!parameter.is_const && !is_output && !spec->mutated) {
    throw Error("the kernel may write " + name +
                ", which the contract does not call mutated; make "
                "the parameter a pointer to const, or the argument mutated");
  }
  if (parameter.is_const && is_output) {
    throw Error(name + " is an output, but the kernel may only read it; remove the const");
  }
  while (spec->like) spec = contract_.arguments()[*spec->like].tensor();
  const std::optional<DType> element = find_in(kElementTypes, parameter.type);
  if (element && spec->dtypes != std::vector{*element}) {
    std::string dtypes;
    for (const DType dtype : spec->dtypes) {
      dtypes += (dtypes.empty() ? "" : "|") + std::string(short_name(dtype));
    }
    throw Error(
        "the kernel takes elements of " + name + " as " + parameter.type +
        ", but in the contract they are " + dtypes +
        (spec->dtypes.size() > 1 ? "; choose the type by a constant of " + name + ".dtype" : ""));
  }
  return {From::tensor, Type::pointer, tensor, name};
}

}  // namespace truefuse::description
