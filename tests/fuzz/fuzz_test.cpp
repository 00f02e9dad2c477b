// The fuzzers' targets over their corpus and inputs near it: the same in every run, with any
// compiler. `make fuzz` searches further.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <optional>

#include <truefuse/jit/entry.h>
#include <truefuse/jit/sha256.h>

#include "mutate.h"
#include "targets.h"

namespace truefuse::fuzz {
namespace {

constexpr int kMutations = 40000;

std::vector<std::string> corpus_of(std::string_view target) {
  std::vector<std::filesystem::path> paths;
  const auto folder = std::filesystem::path(TRUEFUSE_FUZZ_CORPUS) / target;
  for (const auto& file : std::filesystem::directory_iterator(folder)) paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());  // The order of a directory is nobody's promise.
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

/// The first input that breaks something, as the text of a failure.
std::optional<std::string> first_finding(const Target& target,
                                         const std::vector<std::string>& corpus, int mutations) {
  const auto finding = [&](const std::string& input) -> std::optional<std::string> {
    try {
      target.run(input);
      return std::nullopt;
    } catch (const std::exception& error) {
      return std::string(error.what()) + "\n" + testing::PrintToString(input);
    }
  };
  for (const std::string& input : corpus) {
    if (const auto found = finding(input)) return found;
  }
  Mutator mutator(corpus, 1);
  for (int i = 0; i < mutations; ++i) {
    if (const auto found = finding(mutator.next())) return found;
  }
  return std::nullopt;
}

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, NothingIsFoundNearTheCorpus) {
  const std::vector<std::string> corpus = corpus_of(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  EXPECT_EQ(first_finding(GetParam(), corpus, kMutations).value_or("nothing"), "nothing");
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(info.param.name); });

// The search finds what it is for: readers with a fault, over the same corpus.

/// Does not look at the digest.
void unsealed_entry(std::string_view input) {
  const std::string_view body =
      input.substr(0, input.size() - std::min<std::size_t>(32, input.size()));
  const jit::Sha256::Digest digest = jit::sha256(body);
  const auto entry =
      jit::parse_entry(std::string(body) + std::string(digest.begin(), digest.end()));
  if (entry) require(jit::serialize_entry(*entry) == input, "two files are one entry");
}

/// Believes the size that the bytes state.
void trusting_bundle(std::string_view input) {
  if (!input.starts_with("truefuse-bundle\n") || input.size() < 28) return;
  std::uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(input[20 + i]);
  require(size <= input.size() - 28, "reads past the end");
}

/// Takes the features as they come.
void unsorted_arch(std::string_view input) {
  const std::size_t first = input.find(':');
  if (!input.starts_with("gfx") || first == input.npos) return;
  const std::size_t second = input.find(':', first + 1);
  if (second == input.npos) return;
  require(input.substr(first, second - first) <= input.substr(second), "two texts are one target");
}

TEST(FuzzSearch, FindsReadersWithAFault) {
  EXPECT_TRUE(first_finding({"", unsealed_entry}, corpus_of("entry"), kMutations));
  EXPECT_TRUE(first_finding({"", trusting_bundle}, corpus_of("bundle"), kMutations));
  EXPECT_TRUE(first_finding({"", unsorted_arch}, {"gfx90a:sramecc+:xnack-"}, kMutations));
}

}  // namespace
}  // namespace truefuse::fuzz
