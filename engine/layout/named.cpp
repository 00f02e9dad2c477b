#include <algorithm>

#include <truefuse/core/error.h>
#include <truefuse/layout/named.h>

namespace truefuse::layout {
namespace {

// H key heads, G value heads for each of them, K and V their sizes. L is the number of past inputs
// that a convolution keeps, its width minus one. Batch, slot and token axes are outside.
constexpr Named kNamed[] = {
    {"qwen3-next/qkvz", "H (q=K | k=K | v=G V | z=G V)",
     "Qwen3-Next's in_proj_qkvz: interleaved per key head"},
    {"qwen3-next/ba", "H (b=G | a=G)", "Qwen3-Next's in_proj_ba: interleaved per key head"},
    {"qwen3.5/qkvz", "q=H K | k=H K | v=H G V | z=H G V",
     "Qwen3.5's in_proj_qkv and in_proj_z as vLLM and SGLang merge them"},
    {"qwen3.5/ba", "b=H G | a=H G",
     "Qwen3.5's in_proj_b and in_proj_a as vLLM and SGLang merge them"},
    {"qwen3.5/qkv", "q=H K | k=H K | v=H G V",
     "Qwen3.5's in_proj_qkv in transformers; convolution channels of both models"},
    {"transformers/conv-state", "H K (_=1 | q=L) | H K (_=1 | k=L) | H G V (_=1 | v=L)",
     "transformers' conv_states [B, C, L+1]: the oldest column is never read by a decode step"},
    {"vllm/conv-state", "L (q=H K | k=H K | v=H G V)",
     "vLLM's pool by default (SD), [slots, L, C]: channels contiguous"},
    {"vllm/conv-state-ds", "q=H K L | k=H K L | v=H G V L",
     "vLLM's pool with VLLM_SSM_CONV_STATE_LAYOUT=DS, [slots, C, L]"},
    {"sglang/conv-state", "q=H K L | k=H K L | v=H G V L", "SGLang's pool [slots, C, L]"},
    {"fla/conv-state", "C (_=1 | x=L)",
     "initial_state of one of flash-linear-attention's convolutions, [N, C, L+1]"},
    {"transformers/state", "state=H G K V",
     "transformers' recurrent_states [B, HV, K, V], float32"},
    {"fla/state", "state=H G K V",
     "fused_recurrent_gated_delta_rule of flash-linear-attention, [N, HV, K, V]"},
    {"fla/state-v-first", "state=H G V K",
     "flash-linear-attention with state_v_first=True (once transpose_state_layout)"},
    {"vllm/state", "state=H G V K",
     "vLLM's pool [slots, HV, V, K]; in 2025 it was [slots, HV, K, V]"},
    {"sglang/state", "state=H G V K", "SGLang's pool [slots, HV, V, K]"},
    {"flashinfer/state", "state=H G V K",
     "FlashInfer's gated_delta_rule_decode_pretranspose, [pool, HV, V, K]"},
    {"flashinfer/state-nontranspose", "state=H G K V",
     "FlashInfer's gated_delta_rule_decode, [B, HV, K, V]"},
    {"aiter/state", "state=H G V K", "AITER's Triton, FlyDSL and gfx950 kernels, [pool, HV, V, K]"},
    {"aiter/state-swizzled", "state=H G K/4 V 4",
     "AITER's fused_split_gdr_update (HIP), [N, HV, K/4, V, 4]"},
};

bool looks_like_a_name(std::string_view text) {
  return text.find('/') != std::string_view::npos &&
         text.find_first_of(" \t\r\n()|=@*:%") == std::string_view::npos &&
         std::any_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

}  // namespace

std::span<const Named> named() { return kNamed; }

Layout named_or_parsed(std::string_view text) {
  for (const Named& layout : kNamed) {
    if (layout.name == text) return Layout::parse(layout.text);
  }
  try {
    return Layout::parse(text);
  } catch (const Error&) {
    if (!looks_like_a_name(text)) throw;
  }
  std::string known;
  for (const Named& layout : kNamed) {
    known += (known.empty() ? "" : ", ") + std::string(layout.name);
  }
  throw Error("layout: there is no layout named " + std::string(text) + "; there are " + known +
              ". A layout can also be written out, such as \"H (q=K | k=K)\"");
}

}  // namespace truefuse::layout
