#include <array>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include <truefuse/description/watched.h>
#include <truefuse/jit/temporary_directory.h>

#include "describing.h"

namespace truefuse::description {
namespace {

namespace fs = std::filesystem;
using testing::kKernel;
using testing::kText;
using testing::replaced;
using truefuse::testing::error_of;

class Folder {
 public:
  Folder() {
    write("description.txt", kText);
    write("kernel.hip", kKernel);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(path());
    std::ofstream(path() + "/" + name, std::ios::binary) << text;
  }
  std::string path() const { return directory_.path() + "/mine"; }
  std::unique_ptr<Watched> watched() const {
    return Watched::folder(path(), "description.txt", "", "");
  }

 private:
  jit::TemporaryDirectory directory_;
};

std::string kernel_of(const Operator& op) { return op.source.files.at("mine/kernel.hip"); }

TEST(Watched, an_edited_kernel_is_a_new_operator) {
  const Folder folder;
  const auto watched = folder.watched();
  const Operator& first = watched->latest();
  EXPECT_EQ(&first, &watched->first().op);
  EXPECT_EQ(&first.now(), &first);
  EXPECT_EQ(&watched->latest(), &first);
  folder.write("kernel.hip", replaced(kKernel, "value + float", "value - float"));
  const Operator& second = watched->latest();
  EXPECT_NE(&second, &first);
  EXPECT_EQ(&first.now(), &second);
  EXPECT_NE(kernel_of(second), kernel_of(first));
  EXPECT_EQ(kernel_of(first), kKernel);
}

TEST(Watched, an_edit_of_the_same_size_in_the_same_tick_is_seen) {
  const Folder folder;
  const auto watched = folder.watched();
  for (int i = 0; i < 50; ++i) {
    const std::string text = replaced(kKernel, "0.0f", std::to_string(i % 10) + ".0f");
    folder.write("kernel.hip", text);
    ASSERT_EQ(kernel_of(watched->latest()), text) << i;
  }
}

TEST(Watched, an_older_modification_time_does_not_hide_an_edit) {
  const Folder folder;
  const auto watched = folder.watched();
  const std::string text = replaced(kKernel, "0.0f", "1.0f");
  folder.write("kernel.hip", text);
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder.path() + "/kernel.hip").c_str(), old, 0), 0);
  EXPECT_EQ(kernel_of(watched->latest()), text);
}

TEST(Watched, touching_a_file_keeps_what_is_loaded) {
  const Folder folder;
  const auto watched = folder.watched();
  const Operator& first = watched->latest();
  folder.write("kernel.hip", kKernel);
  EXPECT_EQ(&watched->latest(), &first);
}

TEST(Watched, a_broken_edit_is_an_error_until_it_is_mended) {
  const Folder folder;
  const auto watched = folder.watched();
  folder.write("description.txt", replaced(kText, "block = 64", "block = sixty"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(
        error_of([&] { watched->latest(); }).find("mine/description.txt:23: there is no sixty"),
        std::string::npos);
  }
  folder.write("description.txt", replaced(kText, "block = 64", "block = 32"));
  EXPECT_NE(&watched->latest(), &watched->first().op);
  fs::remove(folder.path() + "/description.txt");
  EXPECT_NE(error_of([&] { watched->latest(); }).find("holds no description.txt"),
            std::string::npos);
}

/// A description whose grid comes from a C++ file, and that file.
const std::string kPlannedText = replaced(
    replaced(kText, "let:\n", "plan: plan.cpp -> blocks\nlet:\n"), "min(rows, 3)", "blocks");

std::string plan_of(const std::string& blocks) {
  return "#include \"truefuse/host/plan.h\"\n"
         "void plan(const truefuse::host::Call&, truefuse::host::Values& values) {\n"
         "  values[\"blocks\"] = " +
         blocks + ";\n}\nTRUEFUSE_PLAN(plan)\n";
}

std::uint32_t blocks_of(const Operator& op) {
  const std::array<std::int64_t, 2> sizes{3, 4}, strides{4, 1};
  const TensorView x{DType::f32, {}, sizes, strides, reinterpret_cast<void*>(4096)};
  const std::array<Argument, 5> arguments{x, std::monostate{}, 0.5, std::string_view("plain"),
                                          std::int64_t{7}};
  Plan plan;
  op.plan({arguments, std::span(&x, 1)}, {}, plan);
  return plan.launches[0].grid.y;
}

TEST(Watched, an_edited_plan_is_what_runs) {
  const Folder folder;
  folder.write("description.txt", kPlannedText);
  folder.write("plan.cpp", plan_of("2"));
  const auto watched = folder.watched();
  const Operator& first = watched->latest();
  EXPECT_EQ(blocks_of(first), 2u);

  folder.write("plan.cpp", plan_of("5"));
  const Operator& second = watched->latest();
  EXPECT_EQ(blocks_of(second), 5u);
  EXPECT_EQ(blocks_of(first), 2u);  // For calls that are under way.

  folder.write("plan.cpp", plan_of("five"));
  for (int i = 0; i < 2; ++i) {
    const std::string error = error_of([&] { watched->latest(); });
    EXPECT_NE(error.find("mine/plan.cpp:3: error: 'five' was not declared"), std::string::npos)
        << error;
  }
  folder.write("plan.cpp", "#include \"sizes.h\"\n" + plan_of("kBlocks"));
  folder.write("sizes.h", "constexpr int kBlocks = 7;\n");
  EXPECT_EQ(blocks_of(watched->latest()), 7u);
  folder.write("sizes.h", "constexpr int kBlocks = 8;\n");
  EXPECT_EQ(blocks_of(watched->latest()), 8u);
}

TEST(Watched, what_pytorch_has_registered_must_stay) {
  const Folder folder;
  const auto watched = folder.watched();
  const std::vector<std::array<std::string, 3>> cases{
      {"Tensor? y", "Tensor? y=None", "the schema"},
      {"[-8, 8]", "[-9, 8]", "the contract"},
      {"mine::scale", "others::scale", "the operator's name"},
      {"reference: reference", "reference: mathematics", "reference, cpu, gpu or backward"}};
  for (const auto& [from, to, what] : cases) {
    folder.write("description.txt", replaced(kText, from, to));
    const std::string error = error_of([&] { watched->latest(); });
    EXPECT_NE(error.find(what + " has changed since the operator was loaded"), std::string::npos)
        << error;
  }
}

TEST(Watched, texts_are_replaced_or_stay) {
  Sources sources;
  sources.name = "mine/description";
  sources.prefix = "mine";
  sources.text = kText;
  sources.files["kernel.hip"] = kKernel;
  const auto watched = Watched::texts(sources);
  const Operator& first = watched->latest();
  sources.files["kernel.hip"] = replaced(kKernel, "tf::i64 rows", "tf::i64 lines");
  EXPECT_NE(error_of([&] { watched->replace(sources); }), "no error");
  EXPECT_EQ(&watched->latest(), &first);
  sources.files["kernel.hip"] = replaced(kKernel, "0.0f", "1.0f");
  watched->replace(sources);
  EXPECT_EQ(kernel_of(watched->latest()), sources.files["kernel.hip"]);
}

TEST(Watched, a_name_of_one_s_own) {
  const Folder folder;
  const auto watched = Watched::folder(folder.path(), "description.txt", "yours", "scale_2");
  EXPECT_EQ(watched->first().op.qualified_name(), "yours::scale_2");
  EXPECT_TRUE(watched->first().op.schema.starts_with("scale_2(Tensor x"));
}

}  // namespace
}  // namespace truefuse::description
