#include <string>
#include <vector>

#include <truefuse/operators/gdn_decode/choice.h>
#include <truefuse/operators/gdn_decode/operator.h>

namespace truefuse::gdn_decode {
namespace {

struct NamedConstant {
  const char* name;
  std::int64_t value;
};

/// Names and values in one place, so that they cannot part.
std::array<NamedConstant, 45> constants(const Choice& c, const RowLayouts& rows) {
  const Place z = rows.z.value_or(Place{});
  return {{
      {"TF_H", c.heads.H},
      {"TF_G", c.heads.G},
      {"TF_K", c.heads.K},
      {"TF_V", c.heads.V},
      {"TF_TAPS", c.taps},
      {"TF_ROW", type_code(c.row)},
      {"TF_STATE", type_code(c.state)},
      {"TF_A_LOG", type_code(c.a_log)},
      {"TF_DT_BIAS", type_code(c.dt_bias)},
      {"TF_NORM", c.norm ? type_code(*c.norm) : -1},
      {"TF_KEYS_LAST", c.keys_are_last ? 1 : 0},
      {"TF_TOKENS", c.one_token ? 1 : 0},
      {"TF_SPLIT", c.split},
      {"TF_STREAM", c.stream ? 1 : 0},
      {"TF_OVERFLOWS", c.overflows ? 1 : 0},
      {"TF_VECTOR", c.vector},
      {"TF_LANES", c.lanes},
      {"TF_DEPTH", c.depth},
      {"TF_CHUNK_ROWS", c.chunk_rows},
      {"TF_RESIDENT", c.keys_are_last && c.one_token && c.split == 1 && !c.stream ? 3 : 2},
      {"TF_PAIRS", c.pairs ? 1 : 0},
      {"TF_CHANNELS_TOGETHER", c.channels_together ? 1 : 0},
      {"TF_OUTPUTS_TOGETHER", c.outputs_together ? 1 : 0},
      {"TF_TRANSFORMERS", c.rounds_as_transformers ? 1 : 0},
      {"TF_SIGMOID", c.gate_is_sigmoid ? 1 : 0},
      {"TF_Q_BASE", rows.q.base},
      {"TF_Q_HEAD", rows.q.head},
      {"TF_Q_INNER", rows.q.inner},
      {"TF_K_BASE", rows.k.base},
      {"TF_K_HEAD", rows.k.head},
      {"TF_K_INNER", rows.k.inner},
      {"TF_V_BASE", rows.v.base},
      {"TF_V_HEAD", rows.v.head},
      {"TF_V_GROUP", rows.v.group},
      {"TF_V_INNER", rows.v.inner},
      {"TF_Z_BASE", z.base},
      {"TF_Z_HEAD", z.head},
      {"TF_Z_GROUP", z.group},
      {"TF_Z_INNER", z.inner},
      {"TF_B_BASE", rows.b.base},
      {"TF_B_HEAD", rows.b.head},
      {"TF_B_GROUP", rows.b.group},
      {"TF_A_BASE", rows.a.base},
      {"TF_A_HEAD", rows.a.head},
      {"TF_A_GROUP", rows.a.group},
  }};
}

}  // namespace

Variant variant_of(const Choice& choice, const RowLayouts& rows) {
  Variant variant;
  for (const NamedConstant& constant : constants(choice, rows)) variant.add(constant.value);
  return variant;
}

std::vector<std::string> constant_names() {
  std::vector<std::string> names;
  for (const NamedConstant& constant : constants({}, {})) names.emplace_back(constant.name);
  return names;
}

std::vector<Operator::NamedVariant> variants() {
  struct Rows {
    const char* name;
    std::string_view qkvz, ba;
  };
  constexpr Rows kRows[] = {
      {"interleaved", "H (q=K | k=K | v=G V | z=G V)", "H (b=G | a=G)"},
      {"flat", "q=H K | k=H K | v=H G V | z=H G V", "b=H G | a=H G"},
  };
  std::vector<Operator::NamedVariant> all;
  const auto add = [&](const Rows& rows, const Choice& choice, const std::string& label) {
    const RowLayouts& layouts =
        row_layouts({rows.qkvz, rows.ba, std::nullopt, std::nullopt}, choice.heads);
    Operator::NamedVariant named;
    named.label =
        std::string(rows.name) + " HV" + std::to_string(choice.heads.H * choice.heads.G) + label;
    named.kernel = kKernel;
    named.variant = variant_of(choice, layouts);
    named.shown = all.size() < 4;
    named.block_threads = choice.stream ? kStreamThreads : kThreads;
    if (choice.stream || choice.split > 1) {
      named.only_for.assign(kWithClusters.begin(), kWithClusters.end());
    }
    all.push_back(std::move(named));
  };
  Choice choice;
  choice.heads = {16, 3, 128, 128};
  choice.norm = DType::bf16;
  choice.vector = 4;
  choice.lanes = 16;
  choice.pairs = choice.channels_together = choice.outputs_together = true;
  for (const Rows& rows : kRows) add(rows, choice, "");
  Choice columns = choice;
  columns.keys_are_last = false;
  columns.rounds_as_transformers = true;
  for (const Rows& rows : kRows) add(rows, columns, " [K,V] transformers");
  Choice several = choice;
  several.one_token = false;
  for (const Rows& rows : kRows) add(rows, several, " tokens");
  for (const std::int64_t groups : {1, 2, 4, 8}) {
    Choice other = choice;
    other.heads.G = groups;
    for (const Rows& rows : kRows) add(rows, other, "");
  }
  Choice form = choice;
  for (const std::int64_t split : {8, 4, 2}) {
    form.split = split;
    form.depth = 3;
    add(kRows[1], form, " shared by " + std::to_string(split));
  }
  form = choice;
  form.stream = true;
  form.chunk_rows = 8;
  for (const Rows& rows : kRows) add(rows, form, " stream");
  form.overflows = true;
  for (const Rows& rows : kRows) add(rows, form, " stream beyond L2");
  Choice core = choice;
  core.norm = std::nullopt;
  add(kRows[1], core, " core");
  core.state = DType::bf16;
  core.vector = 8;
  add(kRows[1], core, " core bf16 state");
  return all;
}

}  // namespace truefuse::gdn_decode
