#pragma once

#include <stdint.h>

#include <truefuse/capi/truefuse.h>

/// The C face of layouts. `text` is a layout or the name of one, `sizes` such as "H=16 K=128". As
/// in truefuse.h: answers are JSON texts to be released with truefuse_free, errors {"error":
/// "..."}.

#ifdef __cplusplus
extern "C" {
#endif

/// [{name, text, provenance}]
TRUEFUSE_EXPORT char* truefuse_layouts(void);

/// {text, names: [..]}: the layout written out, and the sizes that it needs.
TRUEFUSE_EXPORT char* truefuse_layout_parse(const char* text);

/// {text, sizes: {..}, size, segments: [{name, padding, base, elements, affine, axes: [{name, size,
/// parts: [{divisor, extent, stride}]}]}]}
TRUEFUSE_EXPORT char* truefuse_layout_bind(const char* text, const char* sizes);

/// {offset}
TRUEFUSE_EXPORT char* truefuse_layout_offset(const char* text, const char* sizes,
                                             const char* segment, const int64_t* index,
                                             int64_t indices);

/// {segment, index: [..], text}; segment is "_" for padding.
TRUEFUSE_EXPORT char* truefuse_layout_element(const char* text, const char* sizes, int64_t offset);

/// {a_size, b_size, elements, same (null: not counted), first (null: none), sentence, only_a,
/// only_b, runs: [{offset, length, same, a, b, a_segment, b_segment}], more}. At most `most_runs`
/// runs; `more` says whether there are others. The segment is null past the end of a layout.
TRUEFUSE_EXPORT char* truefuse_layout_compare(const char* a, const char* a_sizes, const char* b,
                                              const char* b_sizes, int64_t most_runs);

/// {kind, expression, expression_moves, gather_moves, dropped}
TRUEFUSE_EXPORT char* truefuse_layout_convert(const char* from, const char* from_sizes,
                                              const char* to, const char* to_sizes);

/// Fills map[0, count) and returns {}: converted[i] = x[map[i]], -1 for padding. `count` is the
/// size of the layout `to`.
TRUEFUSE_EXPORT char* truefuse_layout_index_map(const char* from, const char* from_sizes,
                                                const char* to, const char* to_sizes, int64_t* map,
                                                int64_t count);

/// {size, first, replicated, stretches: [{global, local, length}], more}
TRUEFUSE_EXPORT char* truefuse_layout_share(const char* text, const char* sizes, const char* axis,
                                            int64_t rank, int64_t world, int64_t most_stretches);

/// Fills map[0, count) and returns {}: share[i] = whole[map[i]], -1 for padding. `count` is the
/// share's size.
TRUEFUSE_EXPORT char* truefuse_layout_share_map(const char* text, const char* sizes,
                                                const char* axis, int64_t rank, int64_t world,
                                                int64_t* map, int64_t count);

/// {code}; language: "triton", "hip" or "python".
TRUEFUSE_EXPORT char* truefuse_layout_emit(const char* text, const char* sizes,
                                           const char* language);

#ifdef __cplusplus
}
#endif
