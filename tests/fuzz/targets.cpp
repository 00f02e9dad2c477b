#include "targets.h"

#include <cstdint>
#include <string>

#include <truefuse/core/error.h>
#include <truefuse/jit/bundle.h>
#include <truefuse/jit/code_object.h>
#include <truefuse/jit/elf.h>
#include <truefuse/jit/offload_bundle.h>
#include <truefuse/jit/sha256.h>

#include "text_targets.h"

namespace truefuse::fuzz {
namespace {

/// With the digest that makes a reader look at the rest.
std::string sealed(std::string_view body) {
  const jit::Sha256::Digest digest = jit::sha256(body);
  return std::string(body) + std::string(digest.begin(), digest.end());
}

void check_entry(std::string_view bytes) {
  const std::optional<jit::Key> key = jit::peek_key(bytes);
  const std::optional<jit::CacheEntry> entry = jit::parse_entry(bytes);
  if (!entry) return;
  require(key == entry->key, "a key is another when its code is read too");
  require(!entry->code.empty(), "an entry without code");
  require(jit::serialize_entry(*entry) == bytes, "two files are one entry");
}

void run_entry(std::string_view input) {
  check_entry(input);
  check_entry(sealed(input));
}

void check_bundle(std::string_view bytes) {
  const std::optional<jit::Bundle> bundle = jit::Bundle::parse(bytes);
  if (!bundle) return;
  require(jit::Bundle::pack(bundle->entries()) == bytes, "two files are one bundle");
  const jit::Arch device = jit::parse_arch("gfx90a:sramecc+:xnack-");
  for (const jit::CacheEntry& entry : bundle->entries()) {
    const std::string request = jit::request_digest(entry.key);
    const jit::CacheEntry* const found = bundle->find({request}, device);
    require(found == nullptr || jit::request_digest(found->key) == request,
            "another request's code");
  }
}

template <class T>
std::string little_endian(T value) {
  std::string text;
  for (std::size_t i = 0; i < sizeof value; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

/// The bytes as they are; then as entries, each after its length in two bytes, sealed and framed.
void run_bundle(std::string_view input) {
  check_bundle(input);
  std::string entries;
  std::uint32_t count = 0;
  for (; input.size() > 2; ++count) {
    const auto size = jit::read_integer<std::uint16_t>(input, 0);
    const std::string entry = sealed(input.substr(2, size));
    entries += little_endian<std::uint64_t>(entry.size()) + entry;
    input.remove_prefix(std::min<std::size_t>(input.size(), 2u + size));
  }
  check_bundle("truefuse-bundle\n" + little_endian(count) + entries);
}

/// Bytes that a compiler, or somebody in its place, hands over; its log after the last NUL.
void run_object(std::string_view input) {
  const std::string_view log = input.substr(input.rfind('\0') + 1);
  const jit::Arch arch = jit::parse_arch("gfx90a");
  for (const jit::Resources& kernel : jit::resources_of(input, log)) {
    const jit::Occupancy occupancy = jit::occupancy(kernel, arch, 256, 0);
    require(occupancy.value <= occupancy.maximum, "more waves than there is room for");
  }
  require(jit::target_of(input).size() <= input.size(), "a target that is not in the object");
  if (const auto object = jit::unbundle(input, "gfx90a")) {
    require(object->empty() || (object->data() >= input.data() &&
                                object->data() + object->size() <= input.data() + input.size()),
            "an object outside its bundle");
  }
  if (const std::optional<jit::Elf> elf = jit::Elf::parse(input)) {
    elf->notes();
    elf->build_id();
    elf->dynamic(jit::Elf::kNeeded);
    elf->symbols(jit::Elf::kDynamicSymbols);
  }
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all{
      {"entry", run_entry},       {"bundle", run_bundle}, {"object", run_object},
      {"contract", run_contract}, {"layout", run_layout}, {"arch", run_arch},
      {"source", run_source},
  };
  return all;
}

}  // namespace truefuse::fuzz
