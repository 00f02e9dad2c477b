#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include <truefuse/jit/code_object.h>
#include <truefuse/jit/elf.h>
#include <truefuse/jit/msgpack.h>

namespace truefuse::jit {
namespace {

// Cubins describe themselves in sections .nv.info (all functions) and .nv.info.NAME (one kernel):
// records of a format byte, an attribute byte and a 16-bit value, which for format 4 is the size of
// the data that follow.
constexpr std::uint8_t kSizedValue = 0x04;
constexpr std::uint8_t kMaxThreads = 0x05;
constexpr std::uint8_t kRequiredThreads = 0x10;
constexpr std::uint8_t kFrameSize = 0x11;
constexpr std::uint8_t kMinStackSize = 0x12;
constexpr std::uint8_t kRegisterCount = 0x2f;
constexpr std::uint8_t kEntryFunction = 0x10;  // In st_other of a symbol.

template <class Visit>
void visit_attributes(std::string_view info, const Visit& visit) {
  while (info.size() >= 4) {
    const auto format = read_integer<std::uint8_t>(info, 0);
    const auto attribute = read_integer<std::uint8_t>(info, 1);
    const std::size_t size = format == kSizedValue ? read_integer<std::uint16_t>(info, 2) : 0;
    if (size > info.size() - 4) return;
    if (format == kSizedValue) visit(attribute, info.substr(4, size));
    info.remove_prefix(4 + size);
  }
}

int to_int(std::uint64_t value) {
  return static_cast<int>(
      std::min<std::uint64_t>(value, static_cast<std::uint64_t>(std::numeric_limits<int>::max())));
}

struct CudaNumber {
  int number = 0;
  bool is_specific = false;  // 'a'; the older layout of the flags alone tells.
};

CudaNumber cuda_number(const Elf& elf) {
  const std::uint32_t flags = elf.flags();
  if (elf.abi_version() >= 8) return {static_cast<int>(flags >> 8 & 0xff), false};
  return {static_cast<int>(flags & 0xff), (flags & 0x800) != 0};
}

int product_of_threads(std::string_view data) {
  std::uint64_t product = 1;
  for (std::size_t at = 0; at < 12; at += 4) {
    product *= std::min<std::uint64_t>(read_integer<std::uint32_t>(data, at, 1), 1 << 16);
  }
  return to_int(product);
}

std::vector<Resources> cubin_resources(const Elf& elf) {
  const std::vector<Elf::Symbol> symbols = elf.symbols(Elf::kSymbolTable);
  struct Sizes {
    int registers = -1, frame = -1, stack = -1;
  };
  std::map<std::uint32_t, Sizes> sizes;
  if (const Elf::Section* info = elf.section(".nv.info")) {
    visit_attributes(info->contents, [&](std::uint8_t attribute, std::string_view data) {
      const auto symbol = read_integer<std::uint32_t>(data, 0);
      const int value = to_int(read_integer<std::uint32_t>(data, 4));
      if (attribute == kRegisterCount) sizes[symbol].registers = value;
      if (attribute == kFrameSize) sizes[symbol].frame = value;
      if (attribute == kMinStackSize) sizes[symbol].stack = value;
    });
  }
  std::vector<Resources> kernels;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const Elf::Symbol& symbol = symbols[i];
    if ((symbol.other & kEntryFunction) == 0 || symbol.section >= elf.sections().size()) continue;
    const Elf::Section& text = elf.sections()[symbol.section];
    if (!text.name.starts_with(".text.")) continue;
    const std::string name(symbol.name);
    Resources kernel;
    kernel.kernel = name;
    kernel.wave = 32;
    const Sizes found = sizes[static_cast<std::uint32_t>(i)];
    // Older cubins hold the number in the section header instead.
    kernel.registers = found.registers >= 0 ? found.registers : static_cast<int>(text.info >> 24);
    kernel.scratch_bytes = std::max({found.frame, found.stack, 0});
    const Elf::Section* shared = elf.section(".nv.shared." + name);
    std::uint64_t bytes = shared != nullptr ? shared->size : 0;
    // From sm_90 on, 1 KiB in front belongs to the system and is counted in the section.
    if (cuda_number(elf).number >= 90) bytes -= std::min<std::uint64_t>(bytes, 1024);
    kernel.shared_bytes = to_int(bytes);
    if (const Elf::Section* info = elf.section(".nv.info." + name)) {
      visit_attributes(info->contents, [&](std::uint8_t attribute, std::string_view data) {
        if (attribute == kMaxThreads || attribute == kRequiredThreads) {
          kernel.max_threads = product_of_threads(data);
        }
      });
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

/// The metadata of an AMD code object; its texts point into the object.
std::optional<MsgPack> amd_metadata(const Elf& elf) {
  constexpr std::uint32_t kMetadata = 32;
  for (const Elf::Note& note : elf.notes()) {
    if (note.owner == "AMDGPU" && note.type == kMetadata) return parse_msgpack(note.description);
  }
  return std::nullopt;
}

std::vector<Resources> amd_resources(const Elf& elf) {
  std::vector<Resources> kernels;
  const std::optional<MsgPack> metadata = amd_metadata(elf);
  const MsgPack* list = metadata ? metadata->find("amdhsa.kernels") : nullptr;
  if (list == nullptr) return kernels;
  for (const MsgPack& entry : list->array) {
    const auto number = [&](std::string_view key) {
      const MsgPack* value = entry.find(key);
      const bool is_number = value != nullptr && value->type == MsgPack::Type::integer;
      return is_number && value->integer >= 0 ? to_int(static_cast<std::uint64_t>(value->integer))
                                              : -1;
    };
    Resources kernel;
    if (const MsgPack* name = entry.find(".name")) kernel.kernel = std::string(name->text);
    // The count includes AGPRs where the processor has one file for both.
    kernel.registers = number(".vgpr_count");
    kernel.scalar_registers = number(".sgpr_count");
    kernel.shared_bytes = number(".group_segment_fixed_size");
    kernel.scratch_bytes = number(".private_segment_fixed_size");
    kernel.max_threads = number(".max_flat_workgroup_size");
    kernel.wave = number(".wavefront_size");
    const int vector_spills = number(".vgpr_spill_count");
    const int scalar_spills = number(".sgpr_spill_count");
    if (vector_spills >= 0 && scalar_spills >= 0) kernel.spills = vector_spills + scalar_spills;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

/// From "Function properties for NAME" and, a line later, "... N bytes spill stores, ...".
void add_ptxas_spills(std::vector<Resources>& kernels, std::string_view log) {
  Resources* current = nullptr;
  while (!log.empty()) {
    const std::string line(log.substr(0, log.find('\n')));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    constexpr std::string_view kFunction = "Function properties for ";
    if (const std::size_t at = line.find(kFunction); at != std::string::npos) {
      const std::string name = line.substr(at + kFunction.size());
      const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const Resources& kernel) {
        return kernel.kernel == name;
      });
      current = found == kernels.end() ? nullptr : &*found;
    } else if (const std::size_t end = line.find(" bytes spill stores");
               end != std::string::npos && current != nullptr) {
      const std::size_t begin = line.rfind(' ', end - 1);
      current->spills = std::atoi(line.c_str() + (begin == std::string::npos ? 0 : begin + 1));
    }
  }
}

}  // namespace

std::vector<Resources> resources_of(std::string_view code, std::string_view log) {
  const auto elf = Elf::parse(code);
  if (!elf) return {};
  if (elf->machine() == Elf::kMachineAmdGpu) return amd_resources(*elf);
  if (elf->machine() != Elf::kMachineCuda) return {};
  std::vector<Resources> kernels = cubin_resources(*elf);
  add_ptxas_spills(kernels, log);
  return kernels;
}

std::string target_of(std::string_view code) {
  const auto elf = Elf::parse(code);
  if (!elf) return {};
  if (elf->machine() == Elf::kMachineAmdGpu) {
    const std::optional<MsgPack> metadata = amd_metadata(*elf);
    const MsgPack* target = metadata ? metadata->find("amdhsa.target") : nullptr;
    if (target == nullptr) return {};
    const std::size_t at = target->text.find("gfx");
    return at == std::string_view::npos ? std::string() : std::string(target->text.substr(at));
  }
  if (elf->machine() != Elf::kMachineCuda) return {};
  // Newer cubins hold the command line of ptxas, the only place where the suffix is written.
  const CudaNumber number = cuda_number(*elf);
  const std::string plain = "sm_" + std::to_string(number.number);
  for (const Elf::Note& note : elf->notes()) {
    const std::size_t at = note.description.rfind("-arch ");
    if (note.owner != "NVIDIA Corp" || at == std::string_view::npos) continue;
    const std::string_view rest = note.description.substr(at + 6);
    const std::string_view word = rest.substr(0, rest.find_first_of(std::string_view(" \0", 2)));
    if (word.starts_with(plain) && word.size() <= plain.size() + 1) return std::string(word);
  }
  return number.number == 0 ? std::string() : plain + (number.is_specific ? "a" : "");
}

}  // namespace truefuse::jit
