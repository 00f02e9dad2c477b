#include <algorithm>
#include <limits>
#include <variant>

#include <truefuse/description/geometry.h>
#include <truefuse/operator/row_map.h>

namespace truefuse::description {
namespace {

using From = Binding::From;
using Type = Binding::Type;

constexpr std::string_view kLet = "a value", kConstant = "a constant";

template <class T>
void add_number(const std::string& name, std::int64_t value, Launch& launch) {
  if (!std::in_range<T>(value)) {
    throw Error("the kernel's parameter " + name + " is " + std::to_string(value) +
                ", which does not fit in its type; make it tf::i64");
  }
  launch.parameters.add(static_cast<T>(value));
}

}  // namespace

Geometry::Geometry(std::string op, const Contract& contract)
    : op_(std::move(op)), contract_(contract), facts_(contract) {}

std::size_t Geometry::slot_of(const Reference& reference) {
  if (reference.property.empty()) {
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      if (planned_[i] == reference.name) return kMaxFacts + i;
    }
    for (std::size_t i = 0; i < lets_.size(); ++i) {
      if (lets_[i].name == reference.name) return kFirstLet + i;
    }
  }
  std::vector<std::string> others(planned_.begin(), planned_.end());
  for (const Value& let : lets_) others.push_back(let.name);
  const std::size_t slot = facts_.find(reference, others);
  if (slot >= kMaxFacts) throw Error("a description asks for at most 96 facts");
  return slot;
}

Names Geometry::names() {
  return {[this](const Reference& reference) { return slot_of(reference); },
          [this](const Reference& reference, const std::string& word) {
            return facts_.number_of_word(reference, word);
          }};
}

std::vector<Value> Geometry::read_values(const File& file, Scanner& scanner,
                                         std::string_view what) {
  std::vector<Value> values;
  const bool is_let = what == kLet;
  while (!scanner.at_end()) {
    Value value;
    value.place = scanner.position();
    value.name = scanner.name(std::string(what) + "'s name");
    if (what != kConstant) refuse_taken(file, value);
    scanner.expect("=");
    value.expression = Expression::parse(scanner, names());
    for (const Value& other : is_let ? lets_ : values) {
      if (other.name == value.name) file.fail(value.place, value.name + " is given twice");
    }
    // Each value may use those above it.
    (is_let ? lets_ : values).push_back(std::move(value));
  }
  return values;
}

void Geometry::read_plan(const File& file, Scanner& scanner) {
  do {
    const std::size_t place = scanner.position();
    Value value{scanner.name("the name of a value that the function gives"), {}, place};
    refuse_taken(file, value);
    if (planned_.size() == PlanValues::kMost) file.fail(place, "a plan gives at most 32 values");
    planned_.push_back(std::move(value.name));
  } while (scanner.accept(","));
  if (!scanner.at_end()) scanner.fail_expected("',' or the end of the entry");
}

void Geometry::use_plan(const std::string& file, host::abi::Function& function) {
  std::vector<std::pair<std::string, std::size_t>> numbers;
  const auto add = [&](const std::string& name) {
    try {
      numbers.emplace_back(name, facts_.find({name, {}, {}}, {}));
    } catch (const Error&) {  // Not known in every call, so the function does not get it.
    }
  };
  for (const Symbol& symbol : contract_.symbols()) add(symbol.name);
  for (const ArgumentSpec& argument : contract_.arguments()) {
    const auto* scalar = std::get_if<ScalarSpec>(&argument.spec);
    const bool is_whole = scalar != nullptr && (std::holds_alternative<IntSpec>(*scalar) ||
                                                std::holds_alternative<BoolSpec>(*scalar));
    if (is_whole && !argument.symbol) add(argument.name);
  }
  if (facts_.size() > kMaxFacts) throw Error("a description asks for at most 96 facts");
  plan_.emplace(op_, file, planned_, std::move(numbers), function);
}

void Geometry::read_let(const File& file, const Entry& entry) {
  Scanner scanner = entry.scanner(file);
  read_values(file, scanner, kLet);
  if (lets_.size() > kMaxLets) file.fail(entry.place, "there are at most 64 values");
}

void Geometry::read_constants(const File& file, const Entry& entry) {
  Scanner scanner = entry.scanner(file);
  constants_ = read_values(file, scanner, kConstant);
  if (constants_.size() > Variant::kMaxConstants) {
    file.fail(entry.place, "there are at most 64 constants");
  }
  for (const Value& constant : constants_) {
    if (!constant.name.starts_with("TF_")) {
      file.fail(constant.place,
                "a constant's name begins with TF_; other names break headers that "
                "compilers bring along");
    }
  }
}

void Geometry::read_scratch(const File& file, const Entry& entry) {
  Scanner scanner = entry.scanner(file);
  scratch_ = read_values(file, scanner, "a piece of scratch memory");
}

void Geometry::refuse_taken(const File& file, const Value& value) const {
  const auto is_taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& one) { return one.name == value.name; });
  };
  if (is_taken(contract_.symbols()) || is_taken(contract_.arguments()) ||
      is_taken(contract_.outputs()) || value.name == "device") {
    file.fail(value.place, "the contract has a " + value.name + " already; choose another name");
  }
  if (std::find(planned_.begin(), planned_.end(), value.name) != planned_.end()) {
    file.fail(value.place, "the plan gives a " + value.name + " already; choose another name");
  }
}

void Geometry::read_launch(const File& file, const Entry& entry) {
  Scanner scanner = entry.scanner(file);
  LaunchText launch;
  launch.place = scanner.position();
  launch.kernel = scanner.name("the kernel's name");
  while (!scanner.at_end()) {
    const std::size_t place = scanner.position();
    const std::string key = scanner.name("'grid', 'block' or 'shared'");
    scanner.expect("=");
    if (key == "shared") {
      launch.shared = Expression::parse(scanner, names());
      continue;
    }
    if (key != "grid" && key != "block") {
      file.fail(place, "a launch has grid, block and shared, not " + key);
    }
    auto& extents = key == "grid" ? launch.grid : launch.block;
    std::size_t axis = 0;
    do {
      if (axis == 3) file.fail(scanner.position(), "a " + key + " has at most three sizes");
      extents[axis++] = Expression::parse(scanner, names());
    } while (scanner.accept(","));
  }
  if (!launch.grid[0] || !launch.block[0]) {
    file.fail(launch.place, "a launch needs 'grid = ...' (blocks) and 'block = ...' (threads)");
  }
  if (launches_.size() == Plan::kMaxLaunches)
    file.fail(entry.place, "there are at most 4 launches");
  launches_.push_back(std::move(launch));
}

std::vector<std::string> Geometry::constant_names() const {
  std::vector<std::string> names;
  for (const Value& constant : constants_) names.push_back(constant.name);
  return names;
}

std::int64_t Geometry::evaluate(const std::string& what, const Expression& expression,
                                const Slots& slots) const {
  try {
    return expression.evaluate(slots);
  } catch (const Error& error) {
    throw Error(op_ + ": " + what + " has " + error.what());
  }
}

std::uint32_t Geometry::extent(const LaunchText& launch, const char* what, std::size_t axis,
                               const std::optional<Expression>& expression,
                               const Slots& slots) const {
  if (!expression) return 1;
  const bool is_grid = std::string_view(what) == "grid";
  const std::int64_t value = evaluate(launch.kernel + "'s " + what, *expression, slots);
  // CUDA's and HIP's limits together.
  constexpr std::int64_t kMostBlocks[] = {(std::int64_t{1} << 31) - 1, 65535, 65535};
  constexpr std::int64_t kMostThreads[] = {1024, 1024, 64};
  const std::int64_t most = is_grid ? kMostBlocks[axis] : kMostThreads[axis];
  if (value < (is_grid ? 0 : 1) || value > most) {
    throw Error(op_ + ": the " + what + " of " + launch.kernel + " is " + std::to_string(value) +
                " in " + "xyz"[axis] + "; it must be from " + (is_grid ? "0" : "1") + " to " +
                std::to_string(most) +
                (is_grid ? ". Let a block walk over more than its share" : ""));
  }
  return static_cast<std::uint32_t>(value);
}

void Geometry::plan(const Call& call, const DeviceFacts& device, Plan& plan) const {
  Slots slots;
  facts_.evaluate(call, device, slots.data());
  if (plan_) plan_->evaluate(contract_, call, device, slots.data(), &slots[kMaxFacts]);
  for (std::size_t i = 0; i < lets_.size(); ++i) {
    slots[kFirstLet + i] = evaluate(lets_[i].name, lets_[i].expression, slots);
  }
  ScratchPieces scratch;  // Empty, and so without an allocation, for most.
  for (const Value& piece : scratch_) {
    const std::int64_t bytes = evaluate(piece.name, piece.expression, slots);
    if (bytes < 0)
      throw Error(op_ + ": " + piece.name + " has " + std::to_string(bytes) + " bytes");
    scratch.push_back(bytes > 0 ? std::optional(plan.scratch_bytes) : std::nullopt);
    plan.scratch_bytes += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
  }
  for (const LaunchText& text : launches_) {
    Dim3 grid{extent(text, "grid", 0, text.grid[0], slots),
              extent(text, "grid", 1, text.grid[1], slots),
              extent(text, "grid", 2, text.grid[2], slots)};
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) continue;
    Launch& launch = plan.add();
    launch.kernel = text.kernel.c_str();
    launch.grid = grid;
    launch.block = {extent(text, "block", 0, text.block[0], slots),
                    extent(text, "block", 1, text.block[1], slots),
                    extent(text, "block", 2, text.block[2], slots)};
    const std::int64_t along_x = std::int64_t{grid.x} * launch.block.x;
    if (along_x > device.max_grid_threads_x) {
      throw Error(op_ + ": the grid of " + text.kernel + " has " + std::to_string(grid.x) +
                  " blocks of " + std::to_string(launch.block.x) + " threads in x, " +
                  std::to_string(along_x) + " threads together; this device takes at most " +
                  std::to_string(device.max_grid_threads_x) +
                  ". Let a block walk over more than its share");
    }
    const std::uint64_t threads = std::uint64_t{launch.block.x} * launch.block.y * launch.block.z;
    const std::uint32_t most = text.max_threads.value_or(1024);
    if (threads > most) {
      throw Error(op_ + ": a block of " + text.kernel + " has " + std::to_string(threads) +
                  " threads, but the kernel is made for at most " + std::to_string(most));
    }
    if (text.shared) {
      const std::int64_t bytes = evaluate(text.kernel + "'s shared", *text.shared, slots);
      if (bytes < 0 || bytes > device.max_shared_bytes_opt_in) {
        throw Error(op_ + ": " + text.kernel + " asks for " + std::to_string(bytes) +
                    " bytes of shared memory; this device has " +
                    std::to_string(device.max_shared_bytes_opt_in));
      }
      launch.shared_bytes = static_cast<std::uint32_t>(bytes);
    }
    for (const Value& constant : constants_) {
      launch.variant.add(evaluate(constant.name, constant.expression, slots));
    }
    for (const Binding& binding : text.parameters)
      add_parameter(binding, call, slots, scratch, launch);
  }
}

void Geometry::add_parameter(const Binding& binding, const Call& call, const Slots& slots,
                             const ScratchPieces& scratch, Launch& launch) const {
  if (binding.from == From::scratch) {
    const std::optional<std::size_t> offset = scratch[binding.index];
    if (offset) {
      launch.parameters.add_scratch(*offset);
    } else {
      launch.parameters.add(static_cast<void*>(nullptr));
    }
    return;
  }
  if (binding.from == From::tensor || binding.from == From::rows) {
    const std::size_t arguments = call.arguments.size();
    const TensorView* view = binding.index < arguments
                                 ? std::get_if<TensorView>(&call.arguments[binding.index])
                                 : &call.outputs[binding.index - arguments];
    if (binding.from == From::rows) {
      constexpr std::int64_t kOne = 1;
      const TensorView one_row{DType::f32, {}, {&kOne, 1}, {&kOne, 1}, nullptr};
      const Rows rows(view != nullptr ? *view : one_row);
      launch.parameters.add(row_map(op_, binding.name, rows));
      return;
    }
    const bool has_elements =
        view != nullptr && std::none_of(view->sizes.begin(), view->sizes.end(),
                                        [](std::int64_t size) { return size == 0; });
    launch.parameters.add(has_elements ? view->data : static_cast<void*>(nullptr));
    return;
  }
  if (binding.from == From::real) {
    // An integer is accepted for a float; one that is not given counts as 0.
    const Argument& argument = call.arguments[binding.index];
    const auto* real = std::get_if<double>(&argument);
    const auto* whole = std::get_if<std::int64_t>(&argument);
    const double value = real != nullptr    ? *real
                         : whole != nullptr ? static_cast<double>(*whole)
                                            : 0;
    if (binding.type == Type::f64) {
      launch.parameters.add(value);
    } else {
      launch.parameters.add(static_cast<float>(value));
    }
    return;
  }
  const std::int64_t value = slots[binding.index];
  switch (binding.type) {
    case Type::i32:
      return add_number<std::int32_t>(binding.name, value, launch);
    case Type::u32:
      return add_number<std::uint32_t>(binding.name, value, launch);
    case Type::u64:
      return add_number<std::uint64_t>(binding.name, value, launch);
    default:
      return add_number<std::int64_t>(binding.name, value, launch);
  }
}

}  // namespace truefuse::description
